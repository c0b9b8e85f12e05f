"""A soak: streams, a consumer, a producer and a sweeper run for hours, and nothing of theirs may grow.

`python -m benchmarks.longevity --minutes 120 --out FOLDER`; needs Linux's /proc.
"""
