"""The files of a cluster: Parquet parts and index snapshots. This package knows no transaction rule."""
