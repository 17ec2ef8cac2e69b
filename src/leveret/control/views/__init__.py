"""The JSON objects of RabbitMQ's HTTP API for the broker's objects."""
