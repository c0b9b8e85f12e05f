"""A store, files and a clock of a simulated world: each call is a step, and a gate says what becomes of it."""
