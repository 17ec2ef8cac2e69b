"""Commands about streams and super streams."""
