"""`python -m conformance`, also `txnsegment conformance`: one command for all suites, one report.

A suite is one small module here; `suites` lists them. A suite declares its options (`words.Word`) and a function from the given
options to `conformance.results.Result`s. The function imports the code of the suite only when it runs. To add a suite, write its
module with a `words.Suite`, and list it in `suites.SUITES`. Help, usage errors, progress, seeds, reports and the command that
repeats a failure come from this package.
"""
