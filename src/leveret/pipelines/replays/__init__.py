"""Messages of a lake or a stream to an exchange again."""
