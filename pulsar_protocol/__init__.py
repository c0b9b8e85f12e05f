"""A client of Apache Pulsar's binary protocol for scalable topics and transactions. It needs neither Spark nor the metadata store.

messages     the protocol's messages, as classes of the `protobuf` library
frames       bytes to frames and back, with checksums
connection   the state of one connection, without I/O
channel      one connection to a broker over a socket
schemes      the schemes of service URLs
service      the parts of a service URL
connections  the open connections of a client
retries      requests that may be repeated
client       lookups, layouts of topics, transaction coordinators
rest         requests to Pulsar's REST interface
auth         credentials from the environment, and the client of a process
layout       the segments of a scalable topic, and the segment of a key
first_schema registers the first schema of a topic, unless entries name a version of a schema that is gone
values       converts values into Arrow columns and back, by the topic's schema. Its parts: `value_types` (the interface),
             `primitive_values`, `record_values` (AVRO and JSON, with `avro_columns` and `json_text`), `key_values`
entries      the rows of one entry and back: metadata, compression
batches      the payload of a batch as columns and back
chunks       puts messages in chunks together, and divides messages into chunks
producer     sends entries to one segment
producers    producers that stay open between their uses
consumer     one consumer of a segment: a durable one, or one for a single read
reader       reads the entries of one segment
probing      the search for a position in a segment by probes. Pure.
cut          finds the cut and other positions of a segment
subscription acknowledges entries for a reader that keeps its own positions

whole_transactions   cuts that split no transaction. Pure.
succession           the order of the segments of a topic. Pure.
sent_log             the records that say where the rows of each transaction of txnsegment are. They are in a log of the topic
sent_reader          reads the log of `sent_log`
log_holding          the subscription that keeps the log of `sent_log` from retention
whole_cuts           how far a topic can be read, from the cuts of its segments and the log of `sent_log`
owned_names          the names of the topics with the records of an application or a subscription
"""
