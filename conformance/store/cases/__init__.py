"""The cases, a module for each group. `conformance.store.suite` has them all."""
