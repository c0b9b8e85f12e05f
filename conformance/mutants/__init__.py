"""Mutants: deliberate faults in the real code, planted one at a time. If no suite catches a mutant, a check is missing.

planting            declares and plants mutants
seams               replaces a function of the product while the program runs
of_*                the mutants, grouped by the code that they change
catalogue           the list of all mutants, and the rules that must have one
suites              the suites that can catch a mutant: golden scripts, store suite, simulator, exhaustive search, named tests
hunting             runs the suites against the mutants: `python -m conformance --mutants [NAME ..]`, `make mutants`
plugin              a pytest plugin that plants a mutant: `-p conformance.mutants.plugin`
"""
