"""Delayed messages: the delayed exchange, delay levels, and changes of what waits."""
