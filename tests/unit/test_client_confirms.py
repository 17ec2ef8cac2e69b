"""The client's confirms against a plain model, and how returned messages find their publish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.protocol.confirms import Confirms
from leveret.client.protocol.errors import Nacked, PublishError, Unroutable
from leveret.client.protocol.model import Delivery
from leveret.wire.properties import Properties

Settled = list[tuple[str, PublishError | None]]


def tracker(count: int) -> tuple[Confirms[str], Settled]:
    settled: Settled = []
    confirms: Confirms[str] = Confirms(lambda token, error: settled.append((token, error)))
    for number in range(1, count + 1):
        assert confirms.add(str(number), b"") == number
    return confirms, settled


def unroutable(body: bytes, message_id: str | None = None, routing_key: str = "k") -> Unroutable:
    return Unroutable(312, "NO_ROUTE", "x", routing_key, body, Properties(message_id=message_id))


def test_single_and_multiple_answers() -> None:
    confirms, settled = tracker(6)
    confirms.answer(2, multiple=False, accepted=True)
    confirms.answer(2, multiple=False, accepted=True)
    confirms.answer(4, multiple=True, accepted=True)
    confirms.answer(0, multiple=True, accepted=False)
    assert [token for token, _ in settled] == ["2", "1", "3", "4", "5", "6"]
    assert [type(error) for _, error in settled] == [type(None)] * 4 + [Nacked] * 2
    assert not confirms.outstanding


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 35), st.booleans(), st.booleans())))
def test_each_publish_is_settled_at_most_once(count: int, answers: list[tuple[int, bool, bool]]) -> None:
    confirms, settled = tracker(count)
    model = set(range(1, count + 1))
    for number, multiple, accepted in answers:
        covered = {n for n in model if n == number or (multiple and (n <= number or number == 0))}
        before = len(settled)
        confirms.answer(number, multiple, accepted)
        assert {int(token) for token, _ in settled[before:]} == covered
        assert all((error is None) == accepted for _, error in settled[before:])
        model -= covered
    assert set(confirms.outstanding) == model


def test_a_return_fails_the_publish_it_looks_like() -> None:
    confirms, settled = tracker(4)
    confirms.expect_return(1, "x", "k", b"a", None)
    confirms.expect_return(2, "x", "k", b"b", Properties(message_id="2"))
    confirms.expect_return(3, "x", "k", b"b", Properties(message_id="3"))
    error = unroutable(b"b", "3")
    assert confirms.returned(error)
    confirms.answer(4, multiple=True, accepted=True)
    assert settled == [("1", None), ("2", None), ("3", error), ("4", None)]


def test_equal_messages_are_returned_in_their_order() -> None:
    confirms, settled = tracker(3)
    for number in (1, 2, 3):
        confirms.expect_return(number, "x", "k", b"same", None)
    first, second = unroutable(b"same"), unroutable(b"same")
    assert confirms.returned(first)
    assert confirms.returned(second)
    confirms.answer(3, multiple=True, accepted=True)
    assert settled == [("1", first), ("2", second), ("3", None)]


@pytest.mark.parametrize("stranger", [unroutable(b"other"), unroutable(b"a", "id"), unroutable(b"a", None, "other")])
def test_a_return_that_looks_like_nothing_is_not_matched(stranger: Unroutable) -> None:
    confirms, _ = tracker(1)
    confirms.expect_return(1, "x", "k", b"a", None)
    assert not confirms.returned(stranger)


def test_delivery_shows_itself_shortly() -> None:
    delivery = Delivery(b"12345", b"", "x", "k", 7, False, "t")
    assert repr(delivery) == "<Delivery 7 exchange='x' routing_key='k' 5 octets>"
