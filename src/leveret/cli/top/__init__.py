"""leveret top: what a broker does, live in a terminal."""
