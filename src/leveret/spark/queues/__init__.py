"""The queue source: at least once, acknowledged when the sink is done."""
