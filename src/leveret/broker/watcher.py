"""The interface by which federation (leveret.federation) is notified of changes to exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.vhost import VHost


@mypyc_attr(allow_interpreted_subclasses=True)
class Watcher:
    """Does nothing. It is called in the midst of a turn: subclasses record the change, and act at the turn's end."""

    def exchange_changed(self, vhost: VHost, exchange: Exchange) -> None:
        """Handle a declared exchange, or one on which other policies have an effect."""

    def exchange_deleted(self, vhost: VHost, exchange: Exchange) -> None:
        """Handle a deleted exchange; its bindings are not reported."""

    def bound(self, vhost: VHost, binding: Binding) -> None:
        """Handle a new binding of an exchange with a ``watch``."""

    def unbound(self, vhost: VHost, binding: Binding) -> None:
        """Handle a removed binding of an exchange with a ``watch``; very many with one queue are reported in steps."""
