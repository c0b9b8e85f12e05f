"""The live log of transactions, and how a transaction ends."""
