"""The store, files and clock of a simulated world: each call is a step, and a gate decides its fate."""
