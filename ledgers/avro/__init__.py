"""Avro schemas and values of topics: what they mean as columns, which schemas fit each other, bytes to rows and back. Pure."""
