"""The actors: threads of simulated processes. They run the real code of `metadata`, the source and the sink, on both models."""
