"""The marker-based model: `persistent://` topics, whose transactions are decided by markers in the topics' logs
(docs/in_stream.md).

Pure rules read the entries of a log in order and determine which entries count. Every process gets the same result. So several
processes may coordinate one transaction, or append to one topic, at the same time, without fencing.
"""
