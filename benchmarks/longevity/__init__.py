"""A soak test: streams, a consumer, a producer and a sweeper run for hours, and their resources must not grow.

`python -m benchmarks.longevity --minutes 120 --out FOLDER` runs it. It needs Linux's /proc.
"""
