"""The registry of an endpoint's message handlers."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from leveret.endpoint import body, types
from leveret.endpoint.context import Context
from leveret.endpoint.message import Incoming
from leveret.endpoint.recoverability import UnknownMessage

Handler = Callable[[Any, Context], Awaitable[None]]


class Registration(NamedTuple):
    """A handler of a message type: the type's name, its class (None = the handler gets dicts), and the function."""

    name: str
    kind: type | None
    function: Handler


class Handlers:
    """The handlers of one endpoint, in the order in which they were registered."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Registration]] = {}

    def add(self, kind: type | str, function: Handler) -> None:
        """Register a handler for a class, or for dicts of a named type.

        Raises ``TypeError`` if the function is not async or the class is not a message type.
        """
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"a handler must be an async function, not {function!r}")
        name, shape = (kind, None) if isinstance(kind, str) else (types.name_of(kind), kind)
        self._by_name.setdefault(name, []).append(Registration(name, shape, function))

    async def handle(self, message: Incoming, context: Context) -> None:
        """Call all handlers of the message's types one after the other, the most derived type's first.

        Raises ``UnknownMessage`` if no handler is registered, ``UndecodableMessage`` if the body does not match, and
        the errors of the handlers.
        """
        found = [one for name in message.types for one in self._by_name.get(name, ())]
        if not found:
            raise UnknownMessage(_unknown(message.types, self._by_name))
        for one in found:
            await one.function(body.decode(message.body, message.content_type, one.kind), context)


def type_of(function: Handler) -> type:
    """Return the class that annotates a handler's first parameter. Raises ``TypeError`` if it is not a class."""
    name = getattr(function, "__qualname__", repr(function))
    parameters = list(inspect.signature(function).parameters)
    try:
        kind = typing.get_type_hints(function).get(parameters[0]) if parameters else None
    except NameError as error:
        raise TypeError(
            f"name the type, as in handler(TheType): the annotation of {name} can't be read: {error}"
        ) from error
    if not isinstance(kind, type):
        raise TypeError(f"name the type, as in handler(TheType): {name} does not annotate its first parameter with one")
    return kind


def _unknown(names: tuple[str, ...], known: dict[str, list[Registration]]) -> str:
    handled = ", ".join(sorted(known)) or "nothing"
    if not names:
        return f"the message does not state its type; this endpoint handles {handled}"
    return f"no handler for {', '.join(names)}; this endpoint handles {handled}"
