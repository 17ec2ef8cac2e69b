"""Dead letters: reports on them, and sending them back."""
