"""Brokers in the process of a test: started, looked into, and made to fail (docs/guides/testing.md)."""
