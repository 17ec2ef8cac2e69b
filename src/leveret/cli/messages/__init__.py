"""Commands that publish and receive messages over AMQP, on leveret or any other broker."""
