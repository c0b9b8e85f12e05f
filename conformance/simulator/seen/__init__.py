"""Records the store's writes from outside, interprets them, and checks the end state."""
