"""The source: options, plans, offsets, tasks that yield Arrow batches, and the native scan. Imports only metadata and ledgers."""
