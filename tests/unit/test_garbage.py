"""A broker in a process that goes on, as in the test kit: when nobody has it any more, nothing of it stays."""

import gc

from leveret.broker.queue import Queue
from leveret.wire import grammar

from .support import Bench


def queues() -> int:
    gc.collect()
    return sum(type(each) is Queue for each in gc.get_objects())


def test_messages_do_not_keep_a_broker_that_nobody_has() -> None:
    def live() -> None:
        client = Bench().connect()
        client.queue("waits", durable=True)
        client.queue("gives", durable=True)
        for count in (1, 3):
            for name in ("waits", "gives"):
                for _ in range(count):
                    client.publish(name, delivery_mode=2)
        client.send(1, grammar.BASIC_CONSUME, queue="gives", consumer_tag="late")

    live()
    before = queues()
    for _ in range(3):
        live()
    assert queues() == before
