"""Recorded histories of a deployment, and the checker that finds violations in them (`checker`). `format` defines the events of a
history, and `files` reads and writes them.

No module here imports the code that it judges, or any other package of the project.
"""
