"""Shared by all folders of `metadata`: errors, option names, service URLs, clocks, metrics,
garbage collections of Spark's workers.
"""
