"""The command `python -m conformance`, which is also `txnsegment conformance`. It runs the suites that `suites.SUITES` lists, and
writes one report. The packages `scenarios`, `power` and `surface` have commands of their own (`chaos` in this package is the
command of `scenarios`).

Each suite has a small module in this package. The module declares a `words.Suite`: the options (`words.Word`), and a function that
gets the values of the options and returns a list of `conformance.results.Result`. The function imports the code of the suite only
when it runs. To add a suite, write its module and list it in `suites.SUITES`. This package provides help, usage errors, progress,
seeds, reports, and the command that repeats a failure.
"""
