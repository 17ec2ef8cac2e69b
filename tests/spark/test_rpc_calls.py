"""The function of ``rpc``'s tasks, called with Arrow batches; on leveret and on RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from leveret.client import Delivery
from leveret.spark import calls
from leveret.spark.calls import NoReply
from leveret.spark.rpc import BATCHES_MAX, RpcCaller, RpcError

from ..interop.federation.tap import Tap
from ..waiting import until
from .service import Answer, Service


def batches(*requests: list[str | None]) -> Iterator[pa.RecordBatch]:
    number = 0
    for each in requests:
        numbers = range(number, number + len(each))
        number += len(each)
        yield pa.record_batch([pa.array(numbers), pa.array(each, pa.string())], names=["number", "question"])


def caller(url: str, queue: str, window: int = 16, timeout_s: float = 60.0, errors: bool = False) -> RpcCaller:
    return RpcCaller(url, "", queue, "question", "answer", window, timeout_s, errors)


def rows(made: Iterator[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in made for row in batch.to_pylist()]


class Backwards:
    """Collects requests in groups of a size, and answers the last one of a group first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: list[Delivery] = []

    def __call__(self, request: Delivery, answer: Answer) -> None:
        self._held.append(request)
        while len(self._held) == self._size:
            for each in reversed(self._held):
                answer(each, each.body.upper())
            self._held = []


def test_rows_keep_their_order_whatever_that_of_the_replies(url: str) -> None:
    questions = [f"row{number}" for number in range(120)]
    with Service(url, Backwards(8)) as service:
        found = rows(caller(url, service.queue)(batches(questions[:50], [], questions[50:])))
    assert found == [
        {"number": number, "question": text, "answer": text.upper().encode()} for number, text in enumerate(questions)
    ]


def test_null_asks_nothing(url: str) -> None:
    with Service(url) as service:
        found = rows(caller(url, service.queue)(batches(["a", None], [None], ["b"])))
        assert service.seen == [b"a", b"b"]
    assert [row["answer"] for row in found] == [b"A", None, None, b"B"]


def test_replies_find_their_requests_by_the_correlation_id_whatever_else_they_have(url: str) -> None:
    def answer_oddly(request: Delivery, answer: Answer) -> None:
        own = request.correlation_id or ""
        strange = [None, "", "x" * len(own), own[:-1], f"{own}0", f"{own[:20]}{'9' * 10}", f"{own[:-1]}x"]
        for other in strange:
            answer(request, b"not for anybody", correlation_id=other, message_id=own, content_type=own)
        number = int(request.body)
        properties = {
            "content_type": (None, "a", "application/json")[number % 3],
            "headers": (None, {own: own})[number % 2],
            "priority": number % 5 or None,
            "message_id": "".join(strange[1:3]) if number % 7 else None,
        }
        answer(request, request.body, **properties)
        answer(request, b"the second reply", **properties)

    questions = [[str(number) for number in range(first, first + 7)] for first in range(0, 70, 7)]
    with Service(url, answer_oddly) as service:
        found = rows(caller(url, service.queue)(batches(*questions)))
    assert [row["answer"] for row in found] == [row["question"].encode() for row in found]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_requests_of_any_size(url: str, kind: pa.DataType) -> None:
    sizes = [0, 1, 131_064, 131_065, 400_000, 0, 300]
    given = [None, *(bytes([place]) * size for place, size in enumerate(sizes)), None]
    asked = pa.record_batch([pa.array(given, kind).slice(1)], names=["question"])
    with Service(url, lambda request, answer: answer(request, request.body)) as service:
        found = rows(caller(url, service.queue)(iter([asked])))
    assert [row["answer"] for row in found] == given[1:]


def test_the_window_stays_full_from_batch_to_batch_and_no_more_is_asked(url: str) -> None:
    held: list[Delivery] = []
    most = 0

    def only_when_full(request: Delivery, answer: Answer) -> None:
        nonlocal most
        held.append(request)
        most = max(most, len(held))
        # the service would never answer if the window emptied between batches, which hold fewer rows
        if len(held) == 16:
            first = held.pop(0)
            answer(first, first.body)
        if first_of_last in (each.body for each in held):
            while held:
                last = held.pop(0)
                answer(last, last.body)

    first_of_last = b"99"
    groups = [[str(number) for number in range(start, start + 10)] for start in range(0, 100, 10)]
    with Service(url, only_when_full) as service:
        found = rows(caller(url, service.queue)(batches(*groups)))
    assert [row["answer"] for row in found] == [str(number).encode() for number in range(100)]
    assert most == 16


def test_a_slow_reply_holds_up_a_limited_number_of_batches(url: str) -> None:
    held: list[Delivery] = []
    answered: list[bytes] = []

    def first_is_slow(request: Delivery, answer: Answer) -> None:
        held.append(request)
        if len(held) == BATCHES_MAX + 1:
            answered.append(held[0].body)
            for each in held:
                answer(each, each.body)
        elif len(held) > BATCHES_MAX + 1:
            answer(request, request.body)

    def watched() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(*([str(number)] for number in range(40)))):
            assert number <= BATCHES_MAX or answered, "more was taken while the first still waits"
            yield batch

    with Service(url, first_is_slow) as service:
        found = rows(caller(url, service.queue, window=64)(watched()))
    assert [row["answer"] for row in found] == [str(number).encode() for number in range(40)]


def not_silent(request: Delivery, answer: Answer) -> None:
    if request.body != b"silent":
        answer(request, request.body.upper())


def test_a_reply_that_stays_away_fails_the_task_and_names_what_to_change(url: str) -> None:
    with (
        Service(url, not_silent) as service,
        pytest.raises(NoReply, match=rf"within 0\.2 s .* '{service.queue}'; rpc\(timeout=…\) allows more"),
    ):
        rows(caller(url, service.queue, timeout_s=0.2)(batches(["a", "silent", "b"])))


class Clock:
    """The clock of requests, which stands still until a service advances it."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(calls, "monotonic", clock)
    return clock


def test_a_reply_that_stays_away_is_a_row_with_an_error(
    url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_but_one(request: Delivery, answer: Answer) -> None:
        if request.body != b"silent":
            answer(request, request.body.upper())
            answer(request, b"again")  # a duplicate that is ignored

    settled, answered = calls.RequestBatch.settled, []

    def settle(batch: calls.RequestBatch, digits: bytes) -> int | None:
        row = settled(batch, digits)
        if row is not None:
            answered.append(row)
        if len(answered) == 2:
            clock.now_s = 61.0
        return row

    monkeypatch.setattr(calls.RequestBatch, "settled", settle)
    with Service(url, all_but_one) as service:
        found = rows(caller(url, service.queue, timeout_s=60.0, errors=True)(batches(["a", "silent"], ["b"])))
    assert [row["answer"] for row in found] == [b"A", None, b"B"]
    assert [row["answer_error"] is None for row in found] == [True, False, True]
    assert str(found[1]["answer_error"]).startswith("no reply within 60 s")


def test_no_service_fails_the_task_at_once(url: str) -> None:
    told = r"312 NO_ROUTE: the default exchange has .*'spark\.no\.service'; start the service that reads it, .* key="
    with pytest.raises(RpcError, match=told):
        rows(caller(url, "spark.no.service")(batches(["a"])))


def test_no_service_is_an_error_in_every_row(url: str) -> None:
    found = rows(caller(url, "spark.no.service", window=4, errors=True)(batches(["x"] * 10)))
    assert [row["answer"] for row in found] == [None] * 10
    assert {str(row["answer_error"])[:13] for row in found} == {"312 NO_ROUTE:"}


def test_what_the_broker_refuses_fails_the_task_even_with_a_column_for_errors(url: str) -> None:
    calls = RpcCaller(url, "spark.no.exchange", "k", "question", "answer", 4, 60.0, True)
    with pytest.raises(RpcError, match=r"404 NOT_FOUND - no exchange 'spark\.no\.exchange'.*correct exchange="):
        rows(calls(batches(["a"])))


def through(tap: Tap, url: str) -> str:
    return url.replace(f":{urlsplit(url).port}/", f":{tap.port}/")


def test_a_lost_connection_is_made_anew_and_asks_again_what_was_not_answered(url: str) -> None:
    held: list[Delivery] = []

    def after_the_cut(request: Delivery, answer: Answer) -> None:
        if len(service.seen) <= 4:
            answer(request, request.body.upper())
            return
        held.append(request)
        if len(held) == 4:
            tap.cut()
            tap.mend()
        elif len(held) > 4:
            answer(request, request.body.upper())

    questions = [f"row{number}" for number in range(20)]
    with Tap(int(urlsplit(url).port or 0)) as tap, Service(url, after_the_cut) as service:
        found = rows(caller(through(tap, url), service.queue, window=4)(batches(questions)))
        asked = [said.name for said in tap.methods("basic.consume", "basic.publish") if said.connection == 1]
    assert [row["answer"] for row in found] == [text.upper().encode() for text in questions]
    assert sorted(service.seen) == sorted([*(text.encode() for text in questions), *(each.body for each in held[:4])])
    # the new connection consumes replies before it sends a request
    assert asked[:2] == ["basic.consume", "basic.publish"]


def test_who_is_not_let_in_is_told_which_argument_to_change(url: str) -> None:
    wrong = url.replace("guest:guest@", "guest:wrong@")
    with pytest.raises(RpcError, match=r"the broker refused the connection: .* correct user and password in url="):
        rows(caller(wrong, "service")(batches(["a"])))


def test_requests_keep_their_time_when_they_are_asked_again(
    url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(request: Delivery, answer: Answer) -> None:
        tap.cut()

    monkeypatch.setattr(calls, "sleep", lambda pause_s: setattr(clock, "now_s", 61.0))
    with Tap(int(urlsplit(url).port or 0)) as tap, Service(url, cut) as service:
        made = caller(through(tap, url), service.queue, timeout_s=60.0, errors=True)(batches(["a"]))
        with pytest.raises(RpcError, match="is url= correct, and is the broker running"):
            rows(made)
        until(lambda: service.seen == [b"a"], "the service was not asked once")
