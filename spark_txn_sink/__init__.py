"""The sink: Spark tasks stage parts, the driver commits one transaction. Imports metadata and ledgers only."""
