"""The contract of the metadata store (protocol.md section 3) as a suite that runs on any backend, named by its service URL.

    python -m conformance --store zk://host:2181/anywhere --seed 7

Each case (`case.Case`) is a function with one promise in its docstring. It gets an `area.Area`: an empty part of the store, which
it may open as often as it likes, also from other processes (`processes`). Concurrent histories are judged by
`linearizability`. `suite.CASES` lists all cases; `run.run` runs them and returns `conformance.results.Result`s.
"""
