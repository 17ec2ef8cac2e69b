"""Durable storage: the journal, its recovery, the sync thread and the lock of the data directory.

Read disk.py (what a crash may take), format.py (the bytes), journal.py (writing), recovery.py (reading after a crash).
docs/internals/durability.md has the promises.
"""
