"""Explains where a message would go, and why, by the decisions of the broker's own matchers."""
