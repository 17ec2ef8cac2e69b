"""Metrics for monitoring systems: their definitions, their collection and Prometheus's format."""
