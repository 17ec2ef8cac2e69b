"""Declares a layout, with an error that names the conflicting declaration."""

from __future__ import annotations

from leveret.client import ChannelClosed, Connection
from leveret.delay import topology
from leveret.delay.layout import Layout
from leveret.delay.topology import Declaration, ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration


class LayoutConflict(Exception):
    """The broker refused a declaration.

    Attributes:
        what (str): The declaration in words.
        code (int): AMQP reply code.
        text (str): The broker's reply text.
    """

    def __init__(self, what: str, code: int, text: str) -> None:
        super().__init__(what, code, text)
        self.what = what
        self.code = code
        self.text = text

    def __str__(self) -> str:
        if self.code != 406:
            return f"the broker refuses to declare {self.what}: {self.text}"
        return (
            f"{self.what} already exists with other properties: {self.text}\nChoose the layout that it belongs to, "
            "choose another prefix, or delete it once it is empty."
        )


def described(declaration: Declaration) -> str:
    """Describe a declaration in words."""
    match declaration:
        case ExchangeDeclaration(name):
            return f"exchange {name!r}"
        case QueueDeclaration(name):
            return f"queue {name!r}"
        case QueueBinding(queue, exchange, key):
            return f"the binding of queue {queue!r} to {exchange!r} with {key!r}"
        case ExchangeBinding(destination, source, key):
            return f"the binding of exchange {destination!r} to {source!r} with {key!r}"


async def create(connection: Connection, layout: Layout) -> int:
    """Declare the layout and return the number of declarations. Existing equal declarations are no error.

    Raises ``LayoutConflict`` at the first declaration that the broker refuses; earlier ones are not undone.
    """
    declarations = layout.topology()
    async with await connection.channel() as channel:
        for declaration in declarations:
            try:
                await topology.declare(channel, [declaration])
            except ChannelClosed as error:
                raise LayoutConflict(described(declaration), error.code, error.text) from error
    return len(declarations)
