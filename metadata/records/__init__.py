"""What the metadata store holds: names, keys and the types of the records."""
