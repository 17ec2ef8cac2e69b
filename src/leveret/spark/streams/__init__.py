"""The stream source: it keeps offsets, so each message reaches the sink exactly once."""
