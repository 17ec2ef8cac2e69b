"""Commands that declare and delete exchanges as an AMQP client does."""

from __future__ import annotations

from typing import Any

import msgspec

from leveret.control.command import Command
from leveret.control.direct import DirectChannel
from leveret.control.node import BrokerNode
from leveret.control.refusal import not_found
from leveret.control.tables import encoded_table
from leveret.wire import grammar


class DeclareExchange(Command):
    """Do exchange.declare."""

    vhost: str
    name: str
    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> None:
        with DirectChannel(node, self.vhost, self.user) as channel:
            channel.ask(
                grammar.EXCHANGE_DECLARE, exchange=self.name, type=self.type, durable=self.durable,
                auto_delete=self.auto_delete, internal=self.internal, arguments=encoded_table(self.arguments),
            )  # fmt: skip


class DeleteExchange(Command):
    """Do exchange.delete. Unlike there, the exchange must exist."""

    vhost: str
    name: str
    if_unused: bool = False
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> None:
        with DirectChannel(node, self.vhost, self.user) as channel:
            if self.name and self.name not in channel.vhost.exchanges:
                raise not_found(f"no exchange '{self.name}' in vhost '{self.vhost}'")
            channel.ask(grammar.EXCHANGE_DELETE, exchange=self.name, if_unused=self.if_unused)
