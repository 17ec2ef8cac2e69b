"""The plugin's fixtures, also where the plugin itself is not installed."""

from leveret.testing.plugin import amqp_url as amqp_url
from leveret.testing.plugin import leveret_broker as leveret_broker
from leveret.testing.plugin import leveret_session_broker as leveret_session_broker
from leveret.testing.plugin import pytest_configure as pytest_configure
