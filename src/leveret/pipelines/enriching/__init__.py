"""Streams with what services and other streams know, into streams. docs/guides/spark/enrich.md."""
