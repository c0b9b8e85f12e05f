"""The sink: Spark's tasks stage parts, and the driver commits them as one transaction. Of this project it imports only
`metadata`, `pulsar_protocol` and `ledgers`.
"""
