"""Messages: their stored frames, headers, and entries in queues."""
