"""The source: options, plans, offsets, tasks that yield Arrow batches, the native scan. It imports only metadata and ledgers."""
