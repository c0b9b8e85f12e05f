"""The cases, one module for each group. `conformance.store.suite` lists them all."""
