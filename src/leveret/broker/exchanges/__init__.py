"""Exchanges, bindings, and how a message finds its queues."""
