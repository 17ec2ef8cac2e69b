"""leveret doctor: examines a running broker, leveret or RabbitMQ, and explains problems and their remedies."""
