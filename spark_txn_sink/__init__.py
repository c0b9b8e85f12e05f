"""The sink: Spark's tasks stage parts, and the driver commits them as one transaction. It imports only metadata and ledgers."""
