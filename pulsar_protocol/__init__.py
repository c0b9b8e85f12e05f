"""A client of Apache Pulsar's binary protocol for scalable topics and transactions. It needs neither Spark nor the metadata store.

messages     the protocol's messages, as classes of the `protobuf` library
frames       bytes to frames and back, with checksums
connection   the state of one connection, without I/O
channel      one connection to a broker over a socket
service      the parts of a service URL
connections  the open connections of a client
retries      requests that may be repeated
client       lookups, layouts of topics, transaction coordinators
rest         requests to Pulsar's REST interface
auth         credentials from the environment, and the client of a process
layout       the segments of a scalable topic, and the segment of a key
values       values by the topic's schema as Arrow columns and back: `value_types` (the interface), `primitive_values`,
             `record_values` (AVRO and JSON; `avro_columns`, `json_text`), `key_values`
entries      the rows of one entry and back: metadata, compression
batches      the payload of a batch as columns and back
chunks       messages in chunks, put together and divided
producer     sends entries to one segment
producers    producers that stay open between their uses
consumer     one consumer of a segment: durable, or for one read
reader       reads the entries of one segment
probing      the search for a place in a segment by probes. Pure.
cut          finds the cut and other places of a segment
subscription acknowledges entries for a reader with its own positions

whole_transactions   cuts that split no transaction. Pure.
succession           the order of the segments of a topic. Pure.
sent_log             where the rows of each transaction of txnsegment are, as records in a log of the topic
sent_reader          reads this log
whole_cuts           how far a topic can be read, by the cuts and the log
"""
