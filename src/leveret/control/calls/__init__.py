"""The control socket: calls, answers and clients."""
