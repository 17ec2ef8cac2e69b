"""The same scripts of methods on leveret and on RabbitMQ: both must give the same answers, frame by frame.

Without a RabbitMQ, leveret is compared with RabbitMQ's recorded answers. LEVERET_DIFF_SCRIPTS: how many random scripts
(300); LEVERET_DIFF_SEED: a seed other than CI's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from ...conformance.raw import METHODS
from .chance import BACKEND
from .found import FOUND
from .justified import KINDS
from .pair import REPLAYS, Difference, Pair, first_difference
from .player import Player, Seen
from .recording import HOW_TO_RECORD, IS_RECORDING, Recorder, Recording, Undefined, read
from .script import Script, Step, show, step
from .strategies import STEPS, scripts
from .tables import TABLES

SCRIPTS = int(os.environ.get("LEVERET_DIFF_SCRIPTS", "300"))
SEED = int(os.environ.get("LEVERET_DIFF_SEED", "2"))
# After its first ten examples Hypothesis mutates these, and would repeat much the same scripts.
BATCH = 10
UNDEFINED_SHARE_MAX = 0.03
RECORDED_SCRIPTS, RECORDED_SCRIPTS_MIN = 400, 300  # some are left out, as RabbitMQ's results vary
SAMPLE = 8
"""RabbitMQ plays one of this many recorded scripts in each run."""
needs_rabbitmq = pytest.mark.needs("rabbitmq")


class Differs(AssertionError):
    """The script so far, and both results."""


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


def play_random(play: Callable[[Script], None], count: int, of: object) -> None:
    """Play `count` random scripts, the same ones for the same seed `of`."""

    @settings(max_examples=BATCH, database=None, phases=(Phase.generate, Phase.shrink),
              suppress_health_check=list(HealthCheck), print_blob=False, backend=BACKEND)
    @given(scripts())
    def each(script: Script) -> None:
        play(script)

    for batch in range(-(-count // BATCH)):
        seed(f"{of}.{batch}")(each)()


def record(leveret: Player, rabbitmq: Player) -> None:
    """Record RabbitMQ's results of all fixed scripts, and of random ones whose results do not vary."""
    recorder = Recorder(rabbitmq)
    recording = recorder.recording
    with Pair(leveret, recorder) as pair:
        for script in (*FOUND.values(), *TABLES.values()):
            check(pair, script)

        def keep(script: Script) -> None:
            before = dict(recording.seen)
            try:
                check(pair, script)
                recording.random.append(script)
            except Undefined:
                recording.seen = before

        play_random(keep, RECORDED_SCRIPTS, "recorded")
    recording.save()


@needs_rabbitmq
@pytest.mark.timeout(1200 if IS_RECORDING else 300)
def test_the_recording_is_fresh(leveret: Player, rabbitmq_player: Player) -> None:
    if IS_RECORDING:
        record(leveret, rabbitmq_player)
    recorded = Recording.load()
    for script in (*FOUND.values(), *TABLES.values(), *recorded.random)[::SAMPLE]:
        seen = recorded.play(script)
        now = [rabbitmq_player.play(script)]
        while now[-1] != seen and len(now) < REPLAYS:
            now.append(rabbitmq_player.play(script))
        found = first_difference(script, seen, now[-1])
        assert found is None, f"recorded otherwise (first), {HOW_TO_RECORD} does that again: {found.show()}"


def test_recorded_scripts(recorded: Pair, recording: Recording) -> None:
    for script in recording.random:
        check(recorded, script)
    print(recorded.show())
    assert recorded.scripts >= RECORDED_SCRIPTS_MIN
    assert {method for _, method, _ in STEPS} == set(recorded.steps)


@needs_rabbitmq
@pytest.mark.timeout(300 + 3 * SCRIPTS)
def test_random_scripts(live: Pair) -> None:
    play_random(lambda script: check(live, script), SCRIPTS, SEED)
    print(live.show())
    assert live.scripts >= SCRIPTS
    assert live.undefined <= UNDEFINED_SHARE_MAX * live.scripts
    if SCRIPTS >= 1000:  # this many contain everything
        assert {method for _, method, _ in STEPS} == set(live.steps)


def test_all_methods_are_said() -> None:
    said = {method for _, method, _ in STEPS}
    answers = {"basic.return", "basic.deliver", "basic.get-ok", "basic.get-empty", "connection.start",
               "connection.tune", "connection.blocked", "connection.unblocked"}  # fmt: skip
    # tests/conformance/test_connection.py covers these
    handshake = {"connection.start-ok", "connection.tune-ok", "connection.open", "connection.open-ok"}
    assert set(METHODS) - said - answers - handshake <= {f"{method}-ok" for method in said}


@needs_rabbitmq
def test_differences_are_seen(live: Pair) -> None:
    plain = [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", routing_key="q1")]
    assert first_difference(plain, live.leveret.play(plain), live.rabbitmq.play(plain)) is None
    for other in (
        [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", routing_key="q2")],
        [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", routing_key="q1", count=2)],
        [step("1.1", "queue.declare", queue="q1"), step("1.1", "basic.publish", exchange="missing")],
    ):
        found = first_difference(plain, live.leveret.play(plain), live.rabbitmq.play(other))
        assert found is not None
        assert (found.index, found.kind) == (1, "")


class Told:
    """Plays a broker that always answers a method with the same frame."""

    def __init__(self, frames: dict[str, str]) -> None:
        self._frames = frames

    def play(self, script: Script) -> list[Seen]:
        """Return this answer."""
        return [Seen({"1.0": [self._frames[each.does]]} if each.does in self._frames else {}) for each in script]


def test_a_script_goes_on_after_a_justified_difference() -> None:
    script = [step("1.1", "basic.qos"), step("1.1", "basic.get", queue="q1")]
    crash = {"basic.qos": "eof"}
    with Pair(Told({}), Told(crash)) as pair:
        assert pair.difference(script) is None
    with Pair(Told({"basic.get": "basic.get-empty"}), Told({**crash, "basic.get": "basic.get-ok"})) as pair:
        found = pair.difference(script)
    assert found is not None
    assert (found.step, pair.undefined, pair.justified.total()) == (script[1], 0, 1)


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    script = [step("1.1", "basic.get", queue="q1")]
    recording = Recording()
    recording.seen[show(script)] = [Seen({"1.1": ["basic.get-empty"]}, {"q1": (0, 1), "q2": (404,)})]
    recording.random.append(script)
    recording.save(tmp_path / "recorded")
    read_again = Recording.load(tmp_path / "recorded")
    assert (read_again.seen, read_again.random) == (recording.seen, recording.random)
    with Pair(Told({}), read_again) as pair:
        assert pair.difference(script) is not None
        with pytest.raises(AssertionError, match=HOW_TO_RECORD):
            pair.difference([*script, *script])


def test_scripts_can_be_replayed() -> None:
    for script in (*FOUND.values(), *TABLES.values(), [Step("1.1", "basic.qos", {"global": True})]):
        assert read(show(script)) == script  # the output is valid Python


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
    assert kind(lost, count=0)  # by a consumer without acknowledgements
    assert not kind({**lost, "1.2": [late.replace("True", "False")]}, count=0)  # it was never in a queue
    assert not kind({"1.0": [close], "1.2": [late]})  # the other connection got nothing
    assert not kind({"1.0": [close], "1.2": ["basic.cancel"], "2.1": [other + "False"]})
    assert not kind({"1.2": [late], "2.1": [other + "False"]})  # no connection was closed


def test_messages_that_expire_together_may_be_elsewhere_and_not_gone() -> None:
    said = step("1.1", "basic.publish", exchange="amq.fanout", count=2, properties={"expiration": "0"})
    ours = Seen({}, {"q1": (2, 0), "q2": (1, 0), "q3": (405, 1, 0)})

    def kind(**queues: tuple[int, ...]) -> str:
        return Difference([said], 0, ours, Seen({}, {**ours.queues, **queues})).kind

    assert kind(q1=(1, 0), q2=(2, 0))
    assert kind(q1=(1, 0), q3=(405, 2, 0))
    assert not kind(q1=(1, 0))
    assert not kind(q1=(1, 0), q2=(2, 1))
    assert not kind(q1=(1, 0), q3=(2, 0))
    assert not kind(q4=(0, 0))


def test_few_differences_are_justified() -> None:
    assert len(KINDS) <= 10
    assert all(each.name and each.reason and each.source for each in KINDS)
