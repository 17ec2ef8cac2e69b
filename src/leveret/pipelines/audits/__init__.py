"""Follows each message across several brokers by their recorded firehoses. See docs/guides/spark/audit.md."""
