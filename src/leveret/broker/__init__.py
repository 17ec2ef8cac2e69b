"""Virtual hosts, exchanges, queues, consumers, dead letters and expiry.

Deterministic: time, randomness and disk are passed in.
"""
