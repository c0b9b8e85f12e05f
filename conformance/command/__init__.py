"""The command `python -m conformance`, also `txnsegment conformance`. It runs the suites that `suites.SUITES` lists, and writes one
report. Scenarios, power and surface have commands of their own.

Each suite has a small module in this package. The module declares a `words.Suite`: the options (`words.Word`), and a function that
takes their values and returns `conformance.results.Result`s. The function imports the code of the suite only when it runs. To add a
suite, write its module and list it in `suites.SUITES`. Help, usage errors, progress, seeds, reports and the command that repeats a
failure come from this package.
"""
