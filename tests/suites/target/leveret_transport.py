"""A pytest plugin, ``-p leveret_transport``: it puts leveret's kombu transport in the place of py-amqp's."""

from kombu.transport import TRANSPORT_ALIASES

from leveret.frameworks.kombu_alias import TRANSPORTS

TRANSPORT_ALIASES.update(amqp=TRANSPORTS["leveret"], pyamqp=TRANSPORTS["leveret"], amqps=TRANSPORTS["leverets"])
