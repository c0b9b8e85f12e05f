"""How a transaction is committed."""
