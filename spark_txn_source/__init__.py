"""The source: options, plans, offsets, tasks that yield Arrow batches, the native scan. Of this project it imports
only `metadata`, `pulsar_protocol` and `ledgers`.
"""
