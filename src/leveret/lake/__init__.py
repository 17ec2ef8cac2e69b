"""Streams as tables: a separate process seals native segments as Parquet files (extra leveret[lake])."""
