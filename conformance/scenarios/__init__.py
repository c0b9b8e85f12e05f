"""Exactly once under SIGKILL, and atomic reading: real processes that are really killed, and the check of what they left.

`python -m conformance.chaos` (`make chaos`) runs all of it; the tests run a short form. No product code knows of it: jobs are
killed from outside (`killing`), and commits between two calls of the metadata store by a store that counts them (`crashing`).
"""
