"""The account at the end of a run: what became of every message."""
