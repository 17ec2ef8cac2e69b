"""leveret stream: reads streams of leveret or RabbitMQ over AMQP."""
