"""`python -m conformance`, also `txnsegment conformance`: one command for all suites, one report.

A suite is one small module here, `suites` lists them. Each says its words (`words.Word`) and has a function that takes what was
given and returns `conformance.results.Result`s; it imports what it runs only when it runs. To add one: write its module beside the
others, with a `words.Suite`, and name it in `suites.SUITES`. Help, mistakes, progress, seeds, reports and the line that does a
failure again come from here.
"""
