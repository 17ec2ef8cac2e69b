"""What a connection has declared, in order to declare it again after a reconnect.

RabbitMQ's Java client records the same ("RecordedTopology recovery"): exchanges, queues and bindings, whichever channel
declared them, and neither what was only checked (passive) nor what was deleted since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from leveret.client.protocol.requests import Request
from leveret.wire import grammar
from leveret.wire.method import Method

BindingKey = tuple[bool, str, str, str, str]
"""Whether the destination is a queue, destination, source, routing key, arguments."""


class RecordedTopology:
    """The exchanges, queues and bindings of one connection.

    Attributes:
        names: Of queues that the broker named: the name that it gave first → the name that it gave last. The
            application goes on to use the first.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._exchanges: dict[str, Request] = {}
        self._queues: dict[str, Request] = {}
        self._bindings: dict[BindingKey, Request] = {}
        self._consumers: Counter[str] = Counter()  # by queue

    def record(self, request: Request, answer: Method) -> None:
        """Record a request that the broker has answered, if it changes the topology."""
        change = _CHANGES.get(request.spec.key)
        if change is not None:
            change(self, request, answer)

    def declarations(self) -> Iterator[tuple[str | None, Request]]:
        """Yield the requests that declare exchanges and queues again; for a queue, with the name it had first."""
        for request in self._exchanges.values():
            yield None, request
        for name, request in self._queues.items():
            yield name, request

    def bindings(self) -> Iterator[Request]:
        """Yield the requests that bind again, to be sent after the declarations are answered."""
        yield from self._bindings.values()

    def renamed(self, first: str, declared: Method) -> None:
        """Record the name that the broker has given to a queue which it named `first` before."""
        name = declared.text("queue")
        if name != first:
            self.names[first] = name

    def translated(self, values: dict[str, object]) -> dict[str, object]:
        """Return the fields of a request with the present name of its queue."""
        queue = values.get("queue")
        present = self.names.get(queue) if isinstance(queue, str) else None
        return values if present is None else {**values, "queue": present}

    def consumer_began(self, queue: str) -> None:
        """Count a consumer of this connection."""
        self._consumers[queue] += 1

    def consumer_ended(self, queue: str) -> None:
        """Forget an auto-delete queue when its last consumer here has ended: the broker deletes it."""
        self._consumers[queue] -= 1
        if self._consumers[queue]:
            return
        del self._consumers[queue]
        request = self._queues.get(queue)
        if request is not None and request.values["auto_delete"]:
            self._forget_queue(queue)

    def _exchange_declared(self, request: Request, _answer: Method) -> None:
        if not request.values["passive"]:
            self._exchanges[_text(request, "exchange")] = request

    def _exchange_deleted(self, request: Request, _answer: Method) -> None:
        self._forget_exchange(_text(request, "exchange"))

    def _queue_declared(self, request: Request, answer: Method) -> None:
        if not request.values["passive"]:
            self._queues[_text(request, "queue") or answer.text("queue")] = request

    def _queue_deleted(self, request: Request, _answer: Method) -> None:
        self._forget_queue(_text(request, "queue"))

    def _bound(self, request: Request, _answer: Method) -> None:
        self._bindings[_key(request)] = request

    def _unbound(self, request: Request, _answer: Method) -> None:
        self._bindings.pop(_key(request), None)
        self._source_unbound(_key(request)[2])

    def _forget_queue(self, name: str) -> None:
        self._queues.pop(name, None)
        self.names.pop(name, None)
        self._forget_bindings(lambda key: key[0] and key[1] == name)

    def _forget_exchange(self, name: str) -> None:
        self._exchanges.pop(name, None)
        self._forget_bindings(lambda key: key[2] == name or (not key[0] and key[1] == name))

    def _forget_bindings(self, is_gone: Callable[[BindingKey], bool]) -> None:
        gone = [key for key in self._bindings if is_gone(key)]
        for key in gone:
            del self._bindings[key]
        for key in gone:
            self._source_unbound(key[2])

    def _source_unbound(self, source: str) -> None:
        """Forget an auto-delete exchange without bindings: the broker deletes it with its last one."""
        request = self._exchanges.get(source)
        if request is not None and request.values["auto_delete"] and all(key[2] != source for key in self._bindings):
            self._forget_exchange(source)


def _text(request: Request, field: str) -> str:
    value = request.values[field]
    assert isinstance(value, str)  # the request was encoded
    return value


def _key(request: Request) -> BindingKey:
    is_queue = "queue" in request.values
    destination, source = ("queue", "exchange") if is_queue else ("destination", "source")
    ends = _text(request, destination), _text(request, source)
    return is_queue, *ends, _text(request, "routing_key"), repr(request.values["arguments"])


_CHANGES: Final[dict[int, Callable[[RecordedTopology, Request, Method], None]]] = {
    grammar.EXCHANGE_DECLARE.key: RecordedTopology._exchange_declared,
    grammar.EXCHANGE_DELETE.key: RecordedTopology._exchange_deleted,
    grammar.EXCHANGE_BIND.key: RecordedTopology._bound,
    grammar.EXCHANGE_UNBIND.key: RecordedTopology._unbound,
    grammar.QUEUE_DECLARE.key: RecordedTopology._queue_declared,
    grammar.QUEUE_DELETE.key: RecordedTopology._queue_deleted,
    grammar.QUEUE_BIND.key: RecordedTopology._bound,
    grammar.QUEUE_UNBIND.key: RecordedTopology._unbound,
}
