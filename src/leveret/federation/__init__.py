"""Federated exchanges: links that copy messages from upstream exchanges (RabbitMQ, Federated Exchanges)."""
