"""Brokers in the process of a test: started, inspected and made to fail (docs/guides/testing.md)."""
