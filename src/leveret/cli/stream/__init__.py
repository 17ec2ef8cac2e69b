"""leveret stream: what is in a stream, of leveret or of RabbitMQ, over AMQP."""
