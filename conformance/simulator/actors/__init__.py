"""Threads of simulated processes. They run the code of `metadata`, the source and the sink as it is, on topics of either model."""
