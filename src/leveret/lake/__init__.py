"""Streams as tables: native segments sealed as Parquet, in a process of its own (extra leveret[lake])."""
