"""The HTTP API, compared with RabbitMQ's management plugin request by request; see ../README.md."""
