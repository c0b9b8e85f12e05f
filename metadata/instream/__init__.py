"""The older model: `persistent://` topics, whose transactions are decided by markers in the data (docs/in_stream.md).

What the logs say in their order decides, by pure rules; any number of processes may act as coordinator or owner without fencing.
"""
