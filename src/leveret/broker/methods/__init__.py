"""AMQP methods: what a client asks for on a channel."""
