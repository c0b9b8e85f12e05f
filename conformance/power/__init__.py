"""The power suite: it cuts the power at any moment and judges the cluster after that (docs/conformance.md, Power cuts)."""
