"""Chaos on a real Pulsar broker: drivers, executors and the broker are killed, and segments are split and merged, while streams run
(`python -m conformance.pulsar_chaos`, `make pulsar-chaos`). The history checker judges what readers saw.
"""
