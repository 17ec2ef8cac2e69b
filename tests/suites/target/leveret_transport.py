"""A pytest plugin that puts leveret's kombu transport in the place of py-amqp's; loaded with ``-p leveret_transport``."""

from kombu.transport import TRANSPORT_ALIASES

from leveret.frameworks.kombu_alias import TRANSPORTS

TRANSPORT_ALIASES.update(amqp=TRANSPORTS["leveret"], pyamqp=TRANSPORTS["leveret"], amqps=TRANSPORTS["leverets"])
