"""What the journal and the pages keep of the broker, and how a start reads it."""
