"""`python -m conformance.chaos`: the scenarios (`conformance.scenarios`), whose command line is here."""
