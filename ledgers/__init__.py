"""The data itself: Parquet parts, ledgers, index snapshot files. Knows no transaction rule."""
