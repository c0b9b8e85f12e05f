"""`connect("pulsar://..")`: topics, transactions, producers and consumers of a live Pulsar cluster, by the calls of `Cluster`.

cluster            the calls of `Cluster`
topics             `cluster.topics`
subscriptions      `cluster.subscriptions`
transactions       `cluster.transactions`
refused            the errors for calls that a Pulsar cluster does not have, and the REST interface for those that need it
doctor             the checks of `txnsegment doctor`
rows               the rows of `txnsegment topics read`

transaction        one transaction over several topics: rows, and acknowledgements of its participants
appended           the schema and the messages of the rows that a program without Spark appends
ending             the end of a transaction, its participants, and its version of an application
spark_transaction  one transaction over the writes and reads of a Spark program
unread             the rows that a subscription has not acknowledged, for `txn.read`
row_acks           the acknowledgement of the rows of a DataFrame, for `txn.acknowledge_rows`
transaction_acks   the acknowledgements that one transaction has for one subscription

consumer           delivers rows and acknowledges them
opening            opens a consumer, and creates its subscription
feeding            the rows of one topic, micro-batch by micro-batch
delivered          the order in which rows were delivered. Pure
ack_log            the log of acknowledgements of one subscription
ack_records        the records and rules of this log. Pure
"""
