"""Recorded histories of a deployment, and the checker that finds violations in them (`checker`). The module `format` defines the
events of a history. The module `files` reads and writes histories.

No module here imports the code that it judges, or any other package of the project.
"""
