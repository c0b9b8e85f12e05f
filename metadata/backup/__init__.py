"""Backups of the metadata store, and their restoring."""
