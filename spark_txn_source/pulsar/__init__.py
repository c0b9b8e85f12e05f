"""The source for topics of a live Apache Pulsar cluster (`serviceUrl` is `pulsar://..` or `pulsar+ssl://..`).

option_table     declares the options, with the reason for each option that Pulsar topics do not have
options          parses and checks the options
selection        the topics of a read
topics           the segments of a topic, and the shared clients
columns          the columns of a read, by the topic's schema
offsets          the offset of a stream
planning         what a micro-batch reads. Pure.
places           asks the broker for the cuts and starts of segments
watermarks       finds cuts by the records that brokers keep in ZooKeeper
asking           asks the broker about several segments at once
pieces           divides a range of a segment into pieces. Pure.
dividing         counts the entries of a range, and divides tasks into smaller tasks
holding          the durable subscription of a query
tasks            reads a range of a segment as Arrow batches
batch            the batch reader of Spark's DataSource API, for one topic
stream           the stream reader of Spark's DataSource API, for one topic
several          the batch reader for several topics. It has a batch reader for each topic
several_streams  the stream reader for several topics. It has a stream reader for each topic
several_offsets  the offset of a stream from several topics
readers          chooses among the four readers
"""
