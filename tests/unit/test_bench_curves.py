"""The parts of bench/curves.py that need no broker: numbered frames, counting of answers, pictures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from leveret.wire import grammar
from leveret.wire.frames import FrameReader
from leveret.wire.method import decode_method, method_frame

from .bench_modules import imported

pytestmark = pytest.mark.needs("matplotlib")


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    names = ("line", "growth", "usage", "plots", "curves")
    with imported(*names) as found:
        yield dict(zip(names, found, strict=True))


def acks(*tags: tuple[int, bool]) -> bytes:
    frames = [method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple) for tag, multiple in tags]
    return b"".join(frames)


def test_confirms_are_counted_in_pieces_of_any_size(modules: dict[str, ModuleType]) -> None:
    confirms = modules["line"].Confirms()
    confirms.publish(10)
    data = acks((3, True), (5, False), (4, False), (9, False), (8, True))
    left = []
    for at in range(0, len(data), 13):
        confirms.feed(data[at : at + 13])
        left.append(len(confirms))
    assert left == [10, 7, 7, 6, 5, 5, 4, 4, 1]
    confirms.publish(2)
    confirms.feed(acks((12, True)))
    assert len(confirms) == 0


def test_what_is_no_confirm_is_told(modules: dict[str, ModuleType]) -> None:
    line = modules["line"]
    confirms = line.Confirms()
    confirms.publish(1)
    with pytest.raises(line.Failed, match="not a confirm"):
        confirms.feed(method_frame(1, grammar.BASIC_NACK, delivery_tag=1))


def test_numbered_frames_are_those_that_encoding_gives(modules: dict[str, ModuleType]) -> None:
    line = modules["line"]
    made = line.numbered(method_frame(1, grammar.QUEUE_BIND, queue="q0000000", routing_key="a.0000000.*"), [7, 1234567])
    assert made == [
        method_frame(1, grammar.QUEUE_BIND, queue="q0000007", routing_key="a.0000007.*"),
        method_frame(1, grammar.QUEUE_BIND, queue="q1234567", routing_key="a.1234567.*"),
    ]
    with pytest.raises(ValueError, match="0000000"):
        line.numbered(b"no number here", [1])


def test_the_octets_of_a_delivery(modules: dict[str, ModuleType]) -> None:
    line = modules["line"]
    content = line.content(b"x" * 200_000, persistent=True, headers={"number": "1"})
    head = method_frame(
        1,
        grammar.BASIC_DELIVER,
        consumer_tag="c1",
        delivery_tag=1 << 40,
        redelivered=True,
        exchange="e",
        routing_key="k",
    )
    assert line.delivery_octets("c1", "e", "k", [len(content)] * 3) == 3 * len(head + content)


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_a_key_is_taken_by_its_own_binding_only(modules: dict[str, ModuleType], kind: str) -> None:
    growth = modules["growth"]
    patterns = []
    for frame in growth._of_bindings(grammar.QUEUE_BIND, kind, range(12)):
        reader = FrameReader(0)
        reader.feed(frame)
        found = reader.next()
        assert found is not None
        key = decode_method(found.payload).text("routing_key")
        words = [{"*": "[^.]+", "#": ".*"}.get(word, word) for word in key.split(".")]
        patterns.append(re.compile(r"\.".join(words)))
    for number in range(12):
        key = growth._key(kind, number, 999)
        assert [at for at, pattern in enumerate(patterns) if pattern.fullmatch(key)] == [number]


def test_frames_move_to_another_channel(modules: dict[str, ModuleType]) -> None:
    line, growth = modules["line"], modules["growth"]
    moved = growth._on_channel(line.publish("e", "k") + line.content(b"\1\2" * 100), 300)
    reader = FrameReader(0)
    reader.feed(moved)
    frames = [reader.next() for _ in range(3)]
    assert [(frame.kind, frame.channel) for frame in frames if frame] == [(1, 300), (2, 300), (3, 300)]
    assert line.publish("e", "k", 300) == moved[: len(line.publish("e", "k"))]


def test_a_process_with_its_children_is_measured(modules: dict[str, ModuleType]) -> None:
    usage = modules["usage"]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= set(usage.family(os.getpid()))
        mine = usage.Usage(os.getpid())
        assert mine.memory_octets() > usage.Usage(child.pid).memory_octets() > 0
        child.communicate(b"\n")
    assert mine.cost_us(1000, lambda: sum(range(1_000_000))) > 0  # the child has ended, which must do no harm


def test_the_newest_point_counts(modules: dict[str, ModuleType]) -> None:
    point, newest = modules["plots"].Point, modules["plots"].newest
    old, new = (point("c", "leveret", "s", 1, y, "p") for y in (1, 2))
    other = point("c", "rabbitmq", "s", 1, 3, "p")
    assert newest([old, other, new]) == [new, other]


def test_a_picture_is_small_has_text_and_is_the_same_each_time(modules: dict[str, ModuleType]) -> None:
    plots = modules["plots"]
    points = [
        plots.Point("c", broker, f"series {number}", 10**x, 0.3 * x + number, "µs")
        for broker in ("leveret", "rabbitmq")
        for number in range(8)
        for x in range(1, 8)
    ]
    points += [plots.Point("c", "leveret", "memory", x, 1000.0, "octets") for x in (0, 1000)]
    picture = plots.draw(points, "messages")
    assert len(picture.encode()) < 100_000
    assert "series 7</text>" in picture
    assert "rabbitmq</text>" in picture
    assert picture == plots.draw(points, "messages")


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.1"), (1000, "1,000"), (1e7, "10 M"), (1.5e6, "1.5 M")])
def test_numbers_at_axes(modules: dict[str, ModuleType], value: float, text: str) -> None:
    assert modules["plots"].number_text(value) == text


def test_rabbitmq_has_points_of_every_curve(modules: dict[str, ModuleType]) -> None:
    for curve in modules["curves"].CURVES.values():
        assert sum(size <= curve.fewer for size in curve.sizes) >= 1
        assert list(curve.sizes) == sorted(curve.sizes)
