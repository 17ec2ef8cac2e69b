"""Sealed segments of streams as a source of rows: Parquet files, read by path or over HTTP."""
