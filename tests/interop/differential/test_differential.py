"""The same scripts of methods on leveret and on RabbitMQ: both must answer the same, frame by frame.

LEVERET_DIFF_SCRIPTS: how many random scripts (1,000); LEVERET_DIFF_SEED: other ones than CI has.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from ...conformance.raw import METHODS, Typed
from .chance import BACKEND
from .found import FOUND
from .justified import KINDS
from .pair import Difference, Pair, first_difference
from .player import Seen
from .script import Script, show, step
from .strategies import STEPS, scripts
from .tables import TABLES

SCRIPTS = int(os.environ.get("LEVERET_DIFF_SCRIPTS", "1000"))
SEED = int(os.environ.get("LEVERET_DIFF_SEED", "2"))
# After its first ten examples Hypothesis goes on with variations of them, and would play much the same again and again.
BATCH = 10
UNDEFINED_SHARE_MAX = 0.03
pytestmark = pytest.mark.rabbitmq


class Differs(AssertionError):
    """The script so far, and what the two saw after it."""


def check(pair: Pair, script: Script) -> None:
    found = pair.difference(script)
    if found is not None:
        raise Differs(found.show())


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(pair: Pair, name: str) -> None:
    check(pair, FOUND[name])


@pytest.mark.parametrize("name", TABLES)
def test_every_value(pair: Pair, name: str) -> None:
    check(pair, TABLES[name])


@pytest.mark.timeout(0)
def test_random_scripts(pair: Pair) -> None:
    pair.forget()

    @settings(max_examples=BATCH, database=None, phases=(Phase.generate, Phase.shrink),
              suppress_health_check=list(HealthCheck), print_blob=False, backend=BACKEND)
    @given(scripts())
    def same(script: Script) -> None:
        check(pair, script)

    for batch in range(-(-SCRIPTS // BATCH)):
        seed(f"{SEED}.{batch}")(same)()
    print(pair.show())
    assert pair.scripts >= SCRIPTS
    assert pair.undefined <= UNDEFINED_SHARE_MAX * pair.scripts
    if SCRIPTS >= 1000:  # so many say everything
        assert {method for _, method, _ in STEPS} == set(pair.steps)


def test_all_methods_are_said() -> None:
    said = {method for _, method, _ in STEPS}
    answers = {"basic.return", "basic.deliver", "basic.get-ok", "basic.get-empty", "connection.start",
               "connection.tune", "connection.blocked", "connection.unblocked"}  # fmt: skip
    # tests/conformance/test_connection.py has these
    handshake = {"connection.start-ok", "connection.tune-ok", "connection.open", "connection.open-ok"}
    assert set(METHODS) - said - answers - handshake <= {f"{method}-ok" for method in said}


def test_differences_are_seen(pair: Pair) -> None:
    plain = [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", routing_key="q1")]
    assert first_difference(plain, pair.leveret.play(plain), pair.rabbitmq.play(plain)) is None
    for other in (
        [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", routing_key="q2")],
        [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", routing_key="q1", count=2)],
        [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", exchange="missing")],
    ):
        found = first_difference(plain, pair.leveret.play(plain), pair.rabbitmq.play(other))
        assert found is not None
        assert (found.index, found.kind) == (1, "")


def test_scripts_can_be_replayed() -> None:
    for script in FOUND.values():
        assert eval(show(script), {"step": step, "Typed": Typed}) == script  # what is printed is Python


def test_what_a_closed_connection_is_still_sent_is_no_difference() -> None:
    close, late = "connection.close reply_code=530", "basic.deliver consumer_tag='c' delivery_tag=1 redelivered=True"
    other = "basic.deliver consumer_tag='d' delivery_tag=1 redelivered="
    ours = Seen({"1.0": [close], "2.1": [other + "False"]}, {"q1": (1, 0)})
    said = step("1.1", "basic.consume", queue="q1")

    def kind(frames: dict[str, list[str]], count: int = 1) -> str:
        return Difference([said], 0, ours, Seen(frames, {"q1": (count, 0)})).kind

    assert kind({"1.0": [close], "1.2": [late], "2.1": [other + "True"]})
    assert not kind({"1.0": [close], "1.2": [late], "2.1": [other + "True"]}, count=2)  # one more in the queue
    lost = {"1.0": [close], "1.2": [late], "2.1": [other + "True"]}
    assert kind(lost, count=0)  # by a consumer that acknowledges nothing
    assert not kind({**lost, "1.2": [late.replace("True", "False")]}, count=0)  # it was never there
    assert not kind({"1.0": [close], "1.2": [late]})  # the other connection got nothing
    assert not kind({"1.0": [close], "1.2": ["basic.cancel"], "2.1": [other + "False"]})
    assert not kind({"1.2": [late], "2.1": [other + "False"]})  # nobody was closed


def test_few_differences_are_justified() -> None:
    assert len(KINDS) <= 10
    assert all(each.name and each.reason and each.source for each in KINDS)
