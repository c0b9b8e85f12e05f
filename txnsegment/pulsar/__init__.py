"""`connect("pulsar://..")`: topics, transactions and producers of a live Pulsar cluster, by the calls of `Cluster`."""
