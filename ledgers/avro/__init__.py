"""Avro schemas and values of topics: mapping to columns, compatibility of schemas, conversion between bytes and rows. Pure."""
