"""The test suites that AMQP clients bring along, run unpatched against leveret or RabbitMQ;
docs/reference/conformance.md."""
