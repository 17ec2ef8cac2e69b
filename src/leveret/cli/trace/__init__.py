"""leveret trace: one message's way, live, as the firehose of a broker tells it."""
