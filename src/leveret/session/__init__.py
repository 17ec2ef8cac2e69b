"""What one connection and one channel remember.

Sans-IO: bytes and times in, bytes out; no broker, no socket, no clock.
"""
