"""The exhaustive search: it explores every schedule of a small cast within bounds."""
