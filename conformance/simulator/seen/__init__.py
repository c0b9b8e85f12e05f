"""The view from outside: it records the store's writes, interprets them, and checks the end state."""
