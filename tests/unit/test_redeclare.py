"""Declaring a queue again after a restart, when its arguments come from the journal."""

from __future__ import annotations

import pytest

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.table import Value

from .rig import Rig

ARGUMENTS: dict[str, Value] = {
    "x-max-length": 5, "x-expires": 4_000_000_000, "x-dead-letter-exchange": "ü", "x-single-active-consumer": True,
    "x-consumer-timeout": 7000, "x-overflow": "reject-publish", "other": [1, {"a": None}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, None),
        ({"other": 7}, None),
        ({"x-max-length": 6}, "received '6' but current is '5'"),
        ({"x-single-active-consumer": False}, "received 'false' but current is 'true'"),
        ({"x-expires": 5}, "received '5' but current is '4000000000'"),
        ({"x-message-ttl": 5}, "received the value '5' of type 'signedint' but current is none"),
    ],
)
def test_arguments_outlive_a_restart(changed: dict[str, Value], text: str | None) -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    rig.bench.connect().send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=ARGUMENTS)
    rig.write()
    disk.crash()
    rig = Rig(disk)
    queue = rig.bench.broker.vhosts["/"].queues["q"]
    assert queue.consumers.has_active
    assert int(queue.timeout_ms) == 7000
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=ARGUMENTS | changed)
    rig.write()
    answer = client.methods()[-1]
    if text is None:
        assert answer.spec is grammar.QUEUE_DECLARE_OK
    else:
        assert answer.text("reply_text").endswith(text)
