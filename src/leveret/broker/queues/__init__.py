"""Queues: what waits in them, their arguments, consumers and acknowledgements."""
