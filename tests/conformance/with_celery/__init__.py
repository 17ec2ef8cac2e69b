"""Celery as its users run it: workers and beat as processes of their own, results by rpc://, stock settings."""
