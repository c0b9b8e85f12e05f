"""Deliberate faults in the real code, switched in one at a time: the suites must catch each, or a check is missing.

planting            a mutant, how it is declared and how it is switched in
seams               how a function is replaced while the program runs
of_*                the mutants, by what they break
catalogue           all of them, and the rules that must have one
suites              what may catch a mutant: golden scripts, store suite, simulator, exhaustive search, named tests
hunting             all of it, on several cores: `python -m conformance --mutants [NAME ..]`, `make mutants`
plugin              pytest with a mutant switched in: `-p conformance.mutants.plugin`
"""
