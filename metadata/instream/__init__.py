"""The marker-based model: `persistent://` topics, whose transactions are decided by markers in the topics' logs
(docs/in_stream.md).

Pure rules over the order of the logs decide. Several processes may act as coordinator or owner without fencing.
"""
