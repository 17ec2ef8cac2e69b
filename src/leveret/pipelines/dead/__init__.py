"""Dead letters: what they say, and back with them."""
