"""The source for topics of a live Apache Pulsar cluster (`serviceUrl` is `pulsar://..` or `pulsar+ssl://..`).

option_table   the options, with the reason for each option that Pulsar topics do not have
options        parses and checks them
selection      the topics of a read
topics         the segments of a topic, and the shared clients
columns        the columns of a read, by the topic's schema
offsets        the offset of a stream
planning       what a micro-batch reads. Pure.
places         asks the broker for the cuts and starts of segments
watermarks     finds cuts by the records that brokers keep in ZooKeeper
asking         asks about several segments at once
pieces         divides a range of a segment into pieces. Pure.
dividing       counts the entries of a range, and divides the tasks
holding        the durable subscription of a query
tasks          reads a range of a segment as Arrow batches
batch, stream  the readers of Spark's DataSource API, for one topic
several        the same for several topics. Each topic has a reader of its own.
several_offsets  the offset of a stream from several topics
readers        chooses between them
"""
