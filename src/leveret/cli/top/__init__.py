"""leveret top: the activity of a broker, live in a terminal."""
