"""Publishes messages of a lake or a stream again."""
