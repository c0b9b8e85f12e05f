"""Backup and restore of the metadata store."""
