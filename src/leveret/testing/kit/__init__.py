"""Brokers in the process of a test: started, looked into, and made to fail (docs/TESTING.md)."""
