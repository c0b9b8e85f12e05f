"""Power loss: what a cluster is after the power has failed at any moment (docs/conformance.md, Power cuts)."""
