"""The queue source: at-least-once delivery, acknowledged when the sink is done."""
