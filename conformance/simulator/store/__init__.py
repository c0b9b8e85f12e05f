"""The store, the files and the clock of a simulated world. Each call is a step, and a gate decides its fate."""
