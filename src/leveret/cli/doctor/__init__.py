"""leveret doctor: looks at a running broker, leveret or RabbitMQ, and says what will hurt, why, and what to do."""
