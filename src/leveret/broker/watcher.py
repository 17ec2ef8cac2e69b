"""Who hears what happens to exchanges: federation does (leveret.federation)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.vhost import VHost


@mypyc_attr(allow_interpreted_subclasses=True)
class Watcher:
    """This one does not care. Called in the midst of a turn: a subclass makes a note, and acts at the turn's end."""

    def exchange_changed(self, vhost: VHost, exchange: Exchange) -> None:
        """It was declared, or policies say something else of it."""

    def exchange_deleted(self, vhost: VHost, exchange: Exchange) -> None:
        """It is gone; its bindings go without a word."""

    def bound(self, vhost: VHost, binding: Binding) -> None:
        """A binding of an exchange with a ``watch`` is new."""

    def unbound(self, vhost: VHost, binding: Binding) -> None:
        """A binding of an exchange with a ``watch`` is gone; of very many with one queue it hears by and by."""
