"""leveret trace: follows messages live, by a broker's firehose."""
