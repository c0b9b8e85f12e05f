"""The marker-based model: `persistent://` topics, whose transactions are decided by markers in the topics' logs
(docs/in_stream.md).

Pure rules fold each log in its order and determine the entries that count. Every process gets the same result, so several processes
may act as coordinator or owner without fencing.
"""
