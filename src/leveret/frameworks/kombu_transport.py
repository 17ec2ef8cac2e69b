"""A kombu transport on leveret's client, so that Celery and kombu use it, with leveret and with RabbitMQ.

It has the interface of kombu's pyamqp transport, and raises py-amqp's exceptions, since programs and Celery catch
those. kombu itself reconnects; so these connections do not. docs/guides/celery.md tells how to use it.

What differs from py-amqp: one read takes many messages, which wait in `events` until drain_events() takes them one by
one; calls with nowait=True wait.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import pyamqp

from leveret.client.protocol.errors import ChannelClosed, ConnectionClosed
from leveret.frameworks import kombu_alias as kombu_alias  # noqa: PLC0414  (registers the URL schemes)
from leveret.frameworks.kombu_connection import KombuConnection


class KombuTransport(pyamqp.Transport):
    """The transport of leveret:// URLs; leverets:// is KombuTlsTransport."""

    Connection = KombuConnection  # type: ignore[assignment]
    connection_errors = (*pyamqp.Transport.connection_errors, ConnectionClosed)
    recoverable_connection_errors = (*pyamqp.Transport.recoverable_connection_errors, ConnectionClosed)
    channel_errors = (*pyamqp.Transport.channel_errors, ChannelClosed)
    driver_name = "leveret"

    def driver_version(self) -> str:
        """Return leveret's version."""
        from leveret import __version__

        return __version__

    def register_with_event_loop(self, connection: KombuConnection, loop: Any) -> None:
        """Handle the connection's messages in the loop."""
        connection.register(loop)


class KombuTlsTransport(KombuTransport):
    """The transport of leverets:// URLs: with TLS, whatever `ssl` says."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.client.ssl = self.client.ssl or True  # type: ignore[union-attr]
