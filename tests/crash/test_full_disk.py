"""A full disk, by injected ENOSPC: nothing is lost or confirmed too early, and consumers are served meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from leveret.client import ClientError, Connection, connect
from leveret.testing.processes import LeveretProcess, ProcessFailed
from leveret.wire import grammar

from .test_trace import (
    BY_THE_THREAD,
    EXIT_JOURNAL_FAILED,
    PERSISTENT,
    TracedProcess,
    is_safe_before,
    method_frames,
    parse,
)

QUEUE = "full.disk"

pytestmark = pytest.mark.needs("strace")


def without_room(when: str) -> list[str]:
    """Return options that make these journal writes fail: "4", "4..9", "4+"."""
    return ["-e", f"inject=pwritev,pwritev2:error=ENOSPC:when={when}"]


def threads_without_room(trace: Path) -> set[str]:
    """Return the ids of the threads whose writes have failed."""
    return {line.split()[0] for line in trace.read_text().splitlines() if "ENOSPC" in line}


async def publish(url: str, first: int, count: int) -> None:
    """Publish persistent messages, each confirmed before the next."""
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE)
        await channel.confirm_select()
        for n in range(first, first + count):
            await channel.publish(b"message %06d." % n, "", QUEUE, PERSISTENT)


async def consume(connection: Connection, count: int) -> list[tuple[bytes, bool]]:
    """Consume and acknowledge messages one by one; return their bodies and redelivered flags."""
    channel = await connection.channel()
    await channel.qos(1)
    consumer = await channel.consume(QUEUE)
    got = []
    while len(got) < count:
        delivery = await anext(consumer)
        got.append((delivery.body, delivery.redelivered))
        channel.ack(delivery.delivery_tag)
    return got


async def test_publishing_goes_on_by_itself_when_there_is_room_again(tmp_path: Path) -> None:
    """Writes fail three times: with the reserve, without it, and when the timer retries."""
    trace = tmp_path / "trace"
    # counted for each thread
    with TracedProcess(tmp_path / "data", trace, [*without_room("20..23"), *BY_THE_THREAD]) as process:
        await publish(process.url, 1, 60)
        assert "no room for the journal: No space left on device; the write is retried" in process.output
        assert "low on disk" in process.output
        assert "the journal has disk space again" in process.output
    calls = parse(trace.read_text().splitlines())
    assert 4 <= sum(call.name.startswith("pwritev") and call.result == "-1" for call in calls) <= 8
    tags = []
    for call, name, values in method_frames(calls):
        if name == grammar.BASIC_ACK.name:
            tags.append(int(str(values["delivery_tag"])))
            assert is_safe_before(calls, b"message %06d." % tags[-1], call.began)
    assert tags == list(range(1, 61))
    with LeveretProcess(tmp_path / "data") as again:
        async with await connect(again.url, reconnect=False) as connection:
            assert [body for body, _ in await consume(connection, 60)] == [b"message %06d." % n for n in range(1, 61)]


async def test_without_any_room_consumers_are_served_and_a_stop_says_what_was_not_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LeveretProcess(data) as healthy:
        await publish(healthy.url, 1, 50)
    # Counted for each thread, the event loop's and the sync thread: three batches are written, later ones never.
    trace = tmp_path / "trace"
    process = TracedProcess(data, trace, without_room("4+"))
    process.start()
    try:
        async with (
            await connect(process.url, reconnect=False) as publisher,
            await connect(process.url, reconnect=False) as other,
        ):
            blocked: asyncio.Queue[str | None] = asyncio.Queue()
            publisher.on_blocked(blocked.put_nowait)
            channel = await publisher.channel()
            await channel.confirm_select()
            unconfirmed = []
            told: list[str | None] = []
            while len(threads_without_room(trace)) < 2 or told[-1:] != ["low on disk"]:
                unconfirmed.append(channel.publish(b"too late", "", QUEUE, PERSISTENT))
                await asyncio.wait(unconfirmed, timeout=0.05)
                while not blocked.empty():
                    told.append(blocked.get_nowait())
            assert [body for body, _ in await consume(other, 50)] == [b"message %06d." % n for n in range(1, 51)]
            assert not unconfirmed[-1].done()
            assert process.stop() == EXIT_JOURNAL_FAILED
            with pytest.raises(ClientError):
                await unconfirmed[-1]
    finally:
        process.kill()
    assert "the journal failed, stopping" in process.output
    # The acknowledgements were not written, so the messages are delivered again, marked as redelivered.
    with LeveretProcess(data) as healed:
        async with await connect(healed.url, reconnect=False) as connection:
            confirmed = [f for f in unconfirmed if f.done() and f.exception() is None]
            got = await consume(connection, 50 + len(confirmed))
            assert got[:50] == [(b"message %06d." % n, True) for n in range(1, 51)]


async def test_a_start_without_room_uses_the_reserve(tmp_path: Path) -> None:
    """An orderly stop needs one more record at the next start; the reserve is the space for it."""
    data = tmp_path / "data"
    with LeveretProcess(data) as before:
        await publish(before.url, 1, 3)
    assert (data / "reserve").stat().st_size == 8 << 20
    with TracedProcess(data, tmp_path / "trace", without_room("2")) as process:
        async with await connect(process.url, reconnect=False) as connection:
            assert await consume(connection, 3) == [(b"message %06d." % n, False) for n in range(1, 4)]


async def test_without_a_reserve_no_stop_is_an_orderly_one(tmp_path: Path) -> None:
    """The next start might have no space to record a new life, and would then redeliver messages without
    marking them."""
    data = tmp_path / "data"
    with LeveretProcess(data) as before:
        await publish(before.url, 1, 3)
    (data / "reserve").unlink()
    with TracedProcess(data, tmp_path / "trace", ["-e", "inject=fallocate:error=ENOSPC"]) as poor:
        assert "low on disk" in poor.output
    with LeveretProcess(data) as after:
        async with await connect(after.url, reconnect=False) as connection:
            assert await consume(connection, 3) == [(b"message %06d." % n, True) for n in range(1, 4)]


async def test_after_a_kill_a_start_needs_no_room_at_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LeveretProcess(data) as killed:
        await publish(killed.url, 1, 3)
        killed.kill()
    (data / "reserve").unlink()
    options = [*without_room("2+"), "-e", "inject=fallocate:error=ENOSPC"]
    process = TracedProcess(data, tmp_path / "trace", options)
    process.start()
    try:
        assert "low on disk" in process.output
        async with await connect(process.url, reconnect=False) as connection:
            assert await consume(connection, 3) == [(b"message %06d." % n, True) for n in range(1, 4)]
    finally:
        process.kill()


def test_a_start_for_which_there_is_no_room_says_so(tmp_path: Path) -> None:
    process = TracedProcess(tmp_path / "data", tmp_path / "trace", without_room("1+"))
    with pytest.raises(ProcessFailed):
        process.start()
    assert "cannot serve the data directory" in process.output
    assert "No space left on device" in process.output
    assert "Traceback" not in process.output
    assert process.wait() == EXIT_JOURNAL_FAILED
