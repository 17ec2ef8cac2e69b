"""What became of each message on several brokers, from what their firehoses told. docs/guides/spark/audit.md."""
