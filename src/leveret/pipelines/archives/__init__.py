"""Streams and queues into a lake: rows by day and exchange, each message once. docs/guides/spark/archive.md."""
