"""The stream source: offsets, so exactly once as far as the sink."""
