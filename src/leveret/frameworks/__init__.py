"""Adapters that let task and messaging frameworks use leveret's client, on leveret and RabbitMQ."""
