"""txnsegment beside what one would take instead: Kafka, Delta Lake, and Spark's own Parquet files, all on one machine in one run.

    make peers                                        # 4 M rows, three rounds (hours); prints the table and writes it to a file
    python -m benchmarks.peers --rows 200000 --rounds 1 --only stream_write,delay --systems txnsegment,delta

One measurement of one workload with one system is a cell (`cell.py`). A cell runs in a fresh process, whose Python has the version
of PySpark for which all connectors exist (`environment.py`). Each round runs all cells of a workload one after the other, and every
second round in the reverse order, so that slow drifts of the machine touch all systems. A cell reports the seconds on the clock,
and the seconds of processor time of all processes: driver, JVM, Python workers, and the broker or the ZooKeeper server. It compares
the rows that were written or read with the input, by their count and a hash of all columns.
"""
