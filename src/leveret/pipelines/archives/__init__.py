"""Archives streams and queues in a lake: rows by day and exchange, each message once. See
docs/guides/spark/archive.md."""
