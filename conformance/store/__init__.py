"""A test suite for the contract of the metadata store (protocol.md section 3). It runs on any backend, which is given by its
service URL.

    python -m conformance --store zk://host:2181/anywhere --seed 7

Each case (`case.Case`) is a function whose docstring states one promise of the contract. A case gets an `area.Area`, which is an
empty part of the store. A case may open its area repeatedly, also from other processes (`processes`). `linearizability` judges the
histories of concurrent operations. `suite.CASES` lists all cases. A code such as A26 in a docstring is the number of a known
failure in protocol.md, section 9. `run.run` runs the cases and returns `conformance.results.Result`s.
"""
