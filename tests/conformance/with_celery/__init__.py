"""Celery as its users run it: workers and beat as separate processes, results by rpc://, default settings."""
