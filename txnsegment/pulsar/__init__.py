"""`connect("pulsar://..")`: topics, transactions, producers and consumers of a live Pulsar cluster, by the calls of `Cluster`."""
