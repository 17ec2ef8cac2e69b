"""What is said of the broker's objects: the JSON objects of RabbitMQ's HTTP API, with its names."""
