"""The consumer timeout of a whole broker, on leveret and on RabbitMQ alike; both start with a short one (raw).

RabbitMQ checks once a minute; its channel_tick_interval, which rabbitmq.conf cannot set, makes it check more often.
It closes the channel once for each late delivery, leveret once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from leveret.testing.processes import LeveretProcess, RabbitMQProcess

from ..waiting import until
from .raw import RawClient

TIMED_OUT = (
    406,
    "PRECONDITION_FAILED - delivery acknowledgement on channel {} timed out. Timeout value used: {} ms. This timeout "
    "value can be configured, see consumers doc guide to learn more",
    0, 0,
)
TIMEOUT_MS = 1000


class ImpatientRabbitMQ(RabbitMQProcess):
    def prepare(self) -> None:
        super().prepare()
        settings = f"[{{rabbit, [{{consumer_timeout, {TIMEOUT_MS}}}, {{channel_tick_interval, 200}}]}}]."
        (self.data_dir / "advanced.config").write_text(settings)

    def environment(self) -> Mapping[str, str]:
        advanced = str(Path(self.data_dir) / "advanced.config")
        return {**super().environment(), "RABBITMQ_ADVANCED_CONFIG_FILE": advanced}


@pytest.fixture(scope="module", params=["leveret", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def impatient(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a broker that closes channels after TIMEOUT_MS."""
    if request.param == "rabbitmq":
        with ImpatientRabbitMQ() as process:
            yield process.url
    else:
        with LeveretProcess(arguments=["--consumer-timeout-ms", str(TIMEOUT_MS)]) as process:
            yield process.url


def timed_out(channel: int, timeout_ms: int = TIMEOUT_MS) -> tuple[int, str, int, int]:
    code, text, *ids = TIMED_OUT
    return (code, text.format(channel, timeout_ms), ids[0], ids[1])


def test_the_channel_is_closed_and_the_message_ready_again(impatient: str, unique: str) -> None:
    with RawClient.open(impatient, channels=2) as late, RawClient.open(impatient) as other:
        late.call("queue.declare", queue=unique)
        late.publish(b"x", routing_key=unique)
        late.call("basic.consume", 2, queue=unique)
        late.read("basic.deliver")
        got = late.read("channel.close")
        assert (got.channel, got.error) == (2, timed_out(2))
        # the connection's other channels continue
        until(lambda: late.call("queue.declare", queue=unique, passive=True)["message_count"] == 1)
        got = other.call("basic.get", queue=unique, no_ack=True)
        assert (got.body, got["redelivered"]) == (b"x", True)
        other.call("queue.delete", queue=unique)


def test_a_fetched_message_counts(impatient: str) -> None:
    with RawClient.open(impatient) as late:
        queue = late.call("queue.declare", exclusive=True)["queue"]
        late.publish(b"x", routing_key=queue)
        until(lambda: late.call("basic.get", queue=queue).name == "basic.get-ok")
        assert late.read("channel.close").error == timed_out(1)


def test_acknowledging_in_time(impatient: str) -> None:
    """A second client times out; the first one does not, as it acknowledges each message in time."""
    with RawClient.open(impatient) as late, RawClient.open(impatient) as prompt:
        queues = [client.call("queue.declare", exclusive=True)["queue"] for client in (late, prompt)]
        for client, queue in zip((late, prompt), queues, strict=True):
            client.publish(b"x", routing_key=queue)
            client.call("basic.consume", queue=queue)
        held = late.read("basic.deliver")
        prompt.send("basic.ack", delivery_tag=prompt.read("basic.deliver")["delivery_tag"])
        assert held.body == b"x"
        assert late.read("channel.close").error == timed_out(1)
        prompt.quiet()


def test_a_queue_and_a_consumer_may_have_their_own(broker: str) -> None:
    """As in RabbitMQ from 3.11.15 on; 3.10 has neither. The broker's default is half an hour."""
    with RawClient.open(broker, channels=2) as late:
        queue = late.call("queue.declare", exclusive=True, arguments={"x-consumer-timeout": 500})["queue"]
        plain = late.call("queue.declare", exclusive=True)["queue"]
        for channel, name, given in ((1, queue, {}), (2, plain, {"x-consumer-timeout": 500})):
            late.publish(b"x", routing_key=name)
            late.call("basic.consume", channel, queue=name, arguments=given)
            late.read("basic.deliver")
        closed = {got.channel: got.error for got in (late.read("channel.close"), late.read("channel.close"))}
        assert closed == {1: timed_out(1, 500), 2: timed_out(2, 500)}
