"""From the journal's batches back to exchanges, queues and messages."""

from __future__ import annotations

import struct

from leveret.broker.broker import Broker
from leveret.broker.exchange import Exchange
from leveret.broker.log import CLEAN, DELIVERED, MESSAGES, META, SETTLE, START
from leveret.broker.queue import Queue
from leveret.broker.queue_methods import apply_arguments
from leveret.broker.vhost import VHost
from leveret.wire.table import Value, decode_table

_MESSAGES_HEAD = struct.Struct(">qIIIH")


class Recovery:
    """Feed it every batch in order with `batch`, then call `finish`; it returns how many messages are back."""

    def __init__(self, broker: Broker, now_us: int) -> None:
        self._broker = broker
        self._now_us = now_us
        broker.log.is_replaying = True
        self._queues: dict[int, Queue] = {}
        # queue number -> id -> (key, content, expires_us)
        self._messages: dict[int, dict[int, tuple[bytes, bytes, int]]] = {}
        self._delivered: set[tuple[int, int]] = set()
        self._is_clean = True
        self._last_id = 0

    def batch(self, data: bytes) -> None:
        """Apply the records of one batch."""
        at = 0
        while at < len(data):
            kind = data[at]
            size: int = struct.unpack_from(">I", data, at + 1)[0]
            start = at + 5
            at = start + size
            if kind == MESSAGES:
                self._arrived(data, start, at)
            elif kind == SETTLE:
                number, id = struct.unpack_from(">qq", data, start)
                self._messages.get(number, {}).pop(id, None)
            elif kind == META:
                self._meta(decode_table(data, start)[0])
            elif kind == DELIVERED:
                self._delivered.add(struct.unpack_from(">qq", data, start))
            elif kind == START:
                # ids start again where the journal has forgotten them: the next stop says anew who was delivered
                self._delivered.clear()
            if kind != META:
                # an orderly stop may end in the snapshot of a new file
                self._is_clean = kind == CLEAN

    def _arrived(self, data: bytes, start: int, stop: int) -> None:
        first_id, count, stride, size, key_size = _MESSAGES_HEAD.unpack_from(data, start)
        start += _MESSAGES_HEAD.size
        key = data[start : start + key_size]
        start += key_size
        queues: int = struct.unpack_from(">H", data, start)[0]
        start += 2
        first = start + 16 * queues
        contents = [data[at : at + size] for at in range(first, stop, stride)]
        for index in range(queues):
            number, expires_us = struct.unpack_from(">qq", data, start + 16 * index)
            if number in self._messages:
                messages = self._messages[number]
                for id, content in enumerate(contents, first_id):
                    messages[id] = (key, content, expires_us)
        self._last_id = max(self._last_id, first_id + count - 1)

    def _meta(self, record: dict[str, Value]) -> None:
        op, name = record["op"], record.get("name")
        vhost = self._broker.vhosts[str(record["vhost"])]
        arguments = record.get("arguments", {})
        assert isinstance(arguments, dict)
        if op == "exchange.declare":
            if str(name) not in vhost.exchanges:
                auto_delete, internal = bool(record["auto_delete"]), bool(record["internal"])
                vhost.add_exchange(Exchange(str(name), str(record["type"]), True, auto_delete, internal, arguments))
        elif op == "exchange.delete":
            if str(name) in vhost.exchanges:
                vhost.delete_exchange(vhost.exchanges[str(name)])
        elif op == "queue.declare":
            self._declare_queue(vhost, str(name), record, arguments)
        elif op == "queue.delete":
            if str(name) in vhost.queues:
                queue = vhost.queues[str(name)]
                self._messages.pop(int(queue.number), None)
                vhost.delete_queue(queue)
        else:
            self._binding(vhost, record, arguments)

    def _declare_queue(self, vhost: VHost, name: str, record: dict[str, Value], arguments: dict[str, Value]) -> None:
        number = record["number"]
        assert isinstance(number, int)
        if name in vhost.queues:
            return
        queue = Queue(vhost, name, True, bool(record["auto_delete"]), arguments)
        apply_arguments(queue)
        vhost.add_queue(queue, number, self._now_us)
        self._queues[number] = queue
        self._messages[number] = {}

    def _binding(self, vhost: VHost, record: dict[str, Value], arguments: dict[str, Value]) -> None:
        source = vhost.exchanges.get(str(record["source"]))
        name = str(record["destination"])
        destination = vhost.queues.get(name) if record["is_queue"] else vhost.exchanges.get(name)
        if source is None or destination is None:
            return
        if record["op"] == "bind":
            vhost.bind(source, destination, str(record["key"]), arguments)
        else:
            binding = vhost.find_binding(source, destination, str(record["key"]), arguments)
            if binding is not None:
                vhost.unbind(binding)

    def finish(self) -> int:
        """Put the messages into their queues, oldest first. After an unclean stop all count as delivered before."""
        log = self._broker.log
        count = 0
        for number, messages in self._messages.items():
            queue = self._queues[number]
            for id in sorted(messages):
                key, content, expires_us = messages[id]
                queue.enqueue(content, key, id, expires_us)
                count += 1
            for entry in queue.ready.all():
                entry.redelivered = not self._is_clean or (number, int(entry.id)) in self._delivered
        log.next_id = self._last_id + 1
        log.is_replaying = False
        if self._is_clean:
            log.start()
        self._broker.end_turn(self._now_us)
        return count
