"""The protocol state of one connection and its channels.

Without I/O: bytes and times in, bytes out; no broker, no socket, no clock.
"""
