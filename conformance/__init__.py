"""What anyone can run against a store or a whole deployment: real servers (`servers`), a proxy that loses replies (`proxy`)."""
