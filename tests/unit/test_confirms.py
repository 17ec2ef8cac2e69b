"""Which frames answer which publishes: the broker's confirms against the simplest model that could be right."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from leveret.session.confirms import HANDLED, JOURNALLED, REFUSED, Confirms
from leveret.wire.frames import FrameReader
from leveret.wire.method import decode_method

PUBLISH = st.tuples(st.sampled_from(["handled", "refused", "journalled"]), st.integers(1, 4))
TURN = st.lists(PUBLISH, min_size=1, max_size=6)
STEPS = st.lists(st.one_of(TURN, st.sampled_from(["close", "sync"])), max_size=30)
STANDINGS = {"handled": HANDLED, "refused": REFUSED, "journalled": JOURNALLED}


class Model:
    """The model: for each open tag the word that will answer it, or "" while its record is not on disk."""

    def __init__(self) -> None:
        self.published = 0
        self.open: dict[int, str] = {}
        self.building: set[int] = set()
        self.syncing: set[int] = set()
        self.said: dict[int, str] = {}
        self.front = 0  # all tags up to here are answered

    def publish(self, what: str, count: int) -> None:
        for tag in range(self.published + 1, self.published + count + 1):
            self.open[tag] = {"handled": "ack", "refused": "nack", "journalled": ""}[what]
            if what == "journalled":
                self.building.add(tag)
        self.published += count

    def hear(self, word: str, tag: int, multiple: bool) -> None:
        """Take a frame: all open tags that it covers must be ready for this word, and are answered."""
        covered = [each for each in self.open if each <= tag] if multiple else [tag]
        assert tag in covered, f"{word} {tag} answers nothing new"
        for each in covered:
            assert self.open.pop(each) == word
            self.said[each] = word
        if multiple:
            older = [self.said[each] for each in self.said if each > self.front and each < tag]
            assert set(older) <= {word}, f"{word} {tag} covers what was answered otherwise"
        while self.front + 1 in self.said:
            self.front += 1


def frames(out: BytesWriter) -> list[tuple[str, int, bool]]:
    """Return the written frames as (word, tag, multiple)."""
    reader = FrameReader(0)
    reader.feed(out.getvalue())
    out.truncate(0)
    found: list[tuple[str, int, bool]] = []
    while (frame := reader.next()) is not None:
        method = decode_method(frame.payload)
        assert frame.channel == 7
        found.append((method.name.removeprefix("basic."), method.number("delivery_tag"), method.flag("multiple")))
    return found


def play(steps: list[list[tuple[str, int]] | str]) -> tuple[Model, list[tuple[str, int, bool]]]:
    """Play steps: turns (lists of publishes), "close" (the batch goes to the disk) and "sync" (it is on disk)."""
    confirms, model, out = Confirms(), Model(), BytesWriter()
    said: list[tuple[str, int, bool]] = []
    is_syncing = False
    for step in [*steps, "sync", "close", "sync"]:
        if step == "close" and not is_syncing:
            confirms.close_batch()
            model.building, model.syncing = set(), model.building
            is_syncing = True
        elif step == "sync" and is_syncing:
            is_syncing = False
            model.open |= dict.fromkeys(model.syncing, "ack")
            confirms.synced(out, 7)
        elif not isinstance(step, str):
            for what, count in step:
                confirms.add(count, STANDINGS[what])
                model.publish(what, count)
            wrote = confirms.flush(out, 7)
            assert wrote == (len(out) > 0)
        for word, tag, multiple in frames(out):
            said.append((word, tag, multiple))
            model.hear(word, tag, multiple)
        assert all(word == "" for word in model.open.values()), "an answer is late"
    return model, said


@settings(max_examples=500)
@given(STEPS)
def test_each_tag_is_answered_once_with_its_word_and_never_early(steps: list[list[tuple[str, int]] | str]) -> None:
    model, _ = play(steps)
    assert not model.open
    assert len(model.said) == model.published


def test_alike_neighbours_share_a_frame() -> None:
    assert play([[("handled", 3), ("refused", 2), ("handled", 1), ("refused", 1)]])[1] == [
        ("ack", 3, True), ("nack", 5, True), ("ack", 6, False), ("nack", 7, False),
    ]  # fmt: skip


def test_what_waits_for_the_disk_is_not_covered_by_what_does_not() -> None:
    turns: list[list[tuple[str, int]] | str] = [[("journalled", 2), ("refused", 2)], [("handled", 2)]]
    assert play([*turns, "close", "sync"])[1] == [
        ("nack", 3, False), ("nack", 4, False), ("ack", 5, False), ("ack", 6, False), ("ack", 2, True),
    ]  # fmt: skip


def test_what_came_after_the_batch_was_closed_waits_for_the_next() -> None:
    assert play([[("journalled", 2)], "close", [("journalled", 3)], "sync", "close", "sync"])[1] == [
        ("ack", 2, True), ("ack", 5, True),
    ]  # fmt: skip


def test_a_frame_passes_over_what_was_answered_with_the_same_word() -> None:
    turn = [(what, 1) for _ in range(3) for what in ("journalled", "handled")]
    assert play([turn, "close", "sync"])[1] == [
        ("ack", 2, False), ("ack", 4, False), ("ack", 6, False), ("ack", 5, True),
    ]  # fmt: skip


def test_a_frame_stops_at_what_was_answered_with_the_other_word() -> None:
    assert play([[("journalled", 2), ("refused", 1), ("journalled", 2)], "close", "sync"])[1] == [
        ("nack", 3, False), ("ack", 2, True), ("ack", 5, True),
    ]  # fmt: skip
