"""Reading topics in Spark: options, plan, offsets, tasks that yield Arrow batches, native scan. Knows metadata and ledgers."""
