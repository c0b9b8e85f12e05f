"""Every schedule of a small cast within bounds, none left out."""
