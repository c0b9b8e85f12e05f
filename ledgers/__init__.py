"""Files: Parquet parts, ledgers, index snapshots. This package knows no transaction rule."""
