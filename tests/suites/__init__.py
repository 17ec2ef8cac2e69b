"""AMQP clients' own test suites, run unpatched against leveret or RabbitMQ; see docs/reference/conformance.md."""
