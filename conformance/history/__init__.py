"""Recorded histories of a deployment (`format`, in `files`), and the checker that finds violations in them (`checker`).

No module here imports the code that it judges, or any other package of the project.
"""
