"""Writing topics from Spark: tasks stage parts, the driver commits one transaction. Knows metadata and ledgers."""
