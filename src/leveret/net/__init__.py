"""Sockets, the clock and the sync thread around the broker: bytes in, bytes out, one write per connection and turn."""
