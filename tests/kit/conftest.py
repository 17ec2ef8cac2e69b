"""Loads the plugin's fixtures, also where the plugin itself is not installed."""

from leveret.testing.plugin import amqp_url, leveret_broker, leveret_session_broker, pytest_configure

__all__ = ["amqp_url", "leveret_broker", "leveret_session_broker", "pytest_configure"]
