"""Power loss: the state of a cluster after a power failure at any moment (docs/conformance.md, Power cuts)."""
