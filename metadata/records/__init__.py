"""The records of the metadata store: names, keys and record types."""
