"""Histories: what an outside observer of a deployment recorded (`format`, in `files`), and what is wrong with it (`checker`).

Nothing here knows the code that it judges: it imports no other room.
"""
