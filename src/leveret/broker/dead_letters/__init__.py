"""Dead letters: where messages go that are rejected, expire or exceed a limit."""
