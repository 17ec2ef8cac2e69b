"""leveret ctl drain, between leveret and RabbitMQ, both ways: what messages keep, the output, and that none is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leveret.cli.main import main
from leveret.client import BlockingConnection, Delivery, Properties, connect, drain
from leveret.testing.processes import LeveretProcess

QUEUE = "orders"
SOURCE = Path(drain.__file__).parents[2]


@pytest.fixture(scope="module")
def ours() -> Iterator[LeveretProcess]:
    with LeveretProcess() as process:
        yield process


@pytest.fixture(scope="module")
def other() -> Iterator[LeveretProcess]:
    with LeveretProcess() as process:
        yield process


@pytest.fixture(params=["other", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def there(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of another broker."""
    broker = request.getfixturevalue(request.param)
    url = broker if isinstance(broker, str) else broker.url
    yield url
    clear(url)


@pytest.fixture(autouse=True)
def clean(ours: LeveretProcess) -> Iterator[None]:
    yield
    clear(ours.url)


def clear(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.delete_queue(QUEUE)
        channel.delete_queue("kept")


def ctl(process: LeveretProcess, *arguments: str) -> Result:
    """Run the command for the broker of this data directory."""
    return CliRunner().invoke(main, ["ctl", "--data-dir", str(process.data_dir), *arguments])


def fill(url: str, amount: int, properties: Properties | None = None, queue: str = QUEUE) -> None:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue(queue)
        channel.confirm_select()
        for number in range(amount):
            channel.publish(b"%d" % number, "", queue, properties or Properties(delivery_mode=2))
        channel.wait_for_confirms()


def declare(url: str, queue: str = QUEUE, **arguments: object) -> None:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue(queue, arguments={name.replace("_", "-"): value for name, value in arguments.items()})


def taken(url: str, queue: str = QUEUE) -> list[Delivery]:
    """Consume everything from the queue."""
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        count = channel.declare_queue(queue, passive=True).message_count
        channel.consume(queue, no_ack=True)
        found: list[Delivery] = []
        while len(found) < count:
            found += channel.deliveries(count)
        return found


def bodies(url: str, queue: str = QUEUE) -> list[int]:
    return [int(each.body) for each in taken(url, queue)]


def test_from_ours_to_another(ours: LeveretProcess, there: str) -> None:
    fill(ours.url, 2500)
    declare(there)
    result = ctl(ours, "drain", QUEUE, "--to", there)
    assert result.exit_code == 0, result.output
    assert "2500 messages moved" in result.stdout
    assert "guest:guest" not in result.output
    assert bodies(there) == list(range(2500))
    assert taken(ours.url) == []


def test_from_another_to_ours(ours: LeveretProcess, there: str) -> None:
    fill(there, 2500)
    declare(ours.url)
    result = ctl(ours, "drain", QUEUE, "--from", there, "--to", ours.url)
    assert result.exit_code == 0, result.output
    assert bodies(ours.url) == list(range(2500))
    assert taken(there) == []


def test_a_message_keeps_what_it_has(ours: LeveretProcess, there: str) -> None:
    """Properties, headers, and the routing key of the publish."""
    properties = Properties(
        content_type="text/plain", headers={"a": [1, {"b": "c"}]}, delivery_mode=2, priority=3, correlation_id="c",
        reply_to="r", expiration="86400000", message_id="m", timestamp=1_700_000_000, type="t", app_id="app",
    )  # fmt: skip
    with BlockingConnection(ours.url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue(QUEUE)
        channel.bind_queue(QUEUE, "amq.topic", "a.#")
        channel.confirm_select()
        channel.publish(b"1", "amq.topic", "a.b.c", properties)
        channel.wait_for_confirms()
    declare(there)
    assert ctl(ours, "drain", QUEUE, "--to", there).exit_code == 0
    [delivery] = taken(there)
    assert delivery.routing_key == "a.b.c"
    assert delivery.properties == properties


def test_nothing_stays_behind_but_the_messages(ours: LeveretProcess, other: LeveretProcess) -> None:
    fill(ours.url, 1)
    declare(other.url)
    assert ctl(ours, "drain", QUEUE, "--to", other.url).exit_code == 0
    assert drain.EXCHANGE not in ctl(other, "list_exchanges").stdout
    clear(other.url)


def test_a_user_id_that_the_other_broker_would_not_take_goes_and_is_told(ours: LeveretProcess, there: str) -> None:
    fill(ours.url, 2, Properties(user_id="guest"))
    with BlockingConnection(there, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue(QUEUE)
    assert ctl(ours, "add_user", "clerk", "secret").exit_code == 0
    try:
        assert ctl(ours, "set_permissions", "clerk", ".*", ".*", ".*").exit_code == 0
        assert ctl(ours, "drain", QUEUE, "--to", there).exit_code == 0
        assert [each.properties.user_id for each in taken(there)] == ["guest", "guest"]
        fill(there, 2, Properties(user_id="guest"))
        declare(ours.url)
        as_clerk = ours.url.replace("guest:guest", "clerk:secret")
        result = ctl(ours, "drain", QUEUE, "--from", there, "--to", as_clerk)
        assert "2 messages moved; 2 of them lost their user id" in result.stdout
        assert [each.properties.user_id for each in taken(ours.url)] == [None, None]
    finally:
        ctl(ours, "delete_user", "clerk")


def test_some_of_it_to_a_queue_of_another_name(ours: LeveretProcess, there: str) -> None:
    fill(ours.url, 20)
    declare(there, "kept")
    result = ctl(ours, "--json", "drain", QUEUE, "--to", there, "--queue", "kept", "--count", "7", "--prefetch", "3")
    assert json.loads(result.stdout.splitlines()[-1])["moved"] == 7
    assert bodies(there, "kept") == list(range(7))
    assert bodies(ours.url) == list(range(7, 20))


def test_a_queue_is_declared_as_it_is_here(ours: LeveretProcess, there: str) -> None:
    declare(ours.url, x_max_length=50, x_message_ttl=86_400_000)
    fill_arguments = {"x_max_length": 50, "x_message_ttl": 86_400_000}
    with BlockingConnection(ours.url, reconnect=False) as connection, connection.channel() as channel:
        channel.publish(b"1", "", QUEUE)
    assert ctl(ours, "drain", QUEUE, "--to", there, "--declare").exit_code == 0
    declare(there, **fill_arguments)
    assert bodies(there) == [1]


def test_an_empty_queue_is_drained_at_once(ours: LeveretProcess, there: str) -> None:
    declare(ours.url)
    declare(there)
    result = ctl(ours, "drain", QUEUE, "--to", there)
    assert (result.exit_code, "0 messages moved" in result.stdout) == (0, True)


def test_a_full_queue_is_told_and_the_rest_stays(ours: LeveretProcess, there: str) -> None:
    """Messages that the other broker accepted are not doubled, although the first refusal ended the run."""
    fill(ours.url, 100)
    declare(there, x_max_length=10, x_overflow="reject-publish")
    result = ctl(ours, "drain", QUEUE, "--to", there)
    assert result.exit_code == 70
    assert f"queue '{QUEUE}' refuses more messages (basic.nack); it may be full" in result.stderr
    found = bodies(there)
    assert Counter(found + bodies(ours.url)) == Counter(range(100))
    assert len(found) >= 10


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--to", "{other}"), 70, f"there is no queue '{QUEUE}' to drain into"),
        ((), 64, "give the target broker with --to URL"),
        (("--to", "http://x"), 65, "--to: a connection URL begins with amqp:// or amqps://"),
        (("--to", "{other}", "--from", "nonsense"), 65, "--from: a connection URL begins with"),
        (("--to", "amqp://guest:guest@127.0.0.1:1/"), 69, "cannot connect to 127.0.0.1:1"),
        (("--to", "{wrong}"), 69, "check user 'guest' and its password"),
        (("--to", "{ours}"), 65, "source and target are the same queue"),
        (("--to", "{other}", "--count", "0"), 65, "--count must be at least 1, not 0"),
        (("--to", "{other}", "--prefetch", "70000"), 65, "--prefetch must be at least 1, not 70000"),
        (("--to", "{other}", "--count", "many"), 64, "'many' is not a valid integer"),
        (("--to", "{other}", "--from", "{other}x", "--declare"), 65, "With --from, declare the queue there first"),
    ],
)
def test_what_can_not_be_done_is_told(
    ours: LeveretProcess, other: LeveretProcess, arguments: tuple[str, ...], code: int, text: str
) -> None:
    declare(ours.url)
    words = {"ours": ours.url, "other": other.url, "wrong": other.url.replace("guest:guest", "guest:wrong")}
    result = ctl(ours, "drain", QUEUE, *(each.format_map(words) for each in arguments))
    assert text in result.stderr
    assert result.exit_code == code
    assert "Traceback" not in result.output
    assert "wrong@" not in result.output


def test_a_queue_that_is_not_there(ours: LeveretProcess, other: LeveretProcess) -> None:
    result = ctl(ours, "drain", "none", "--to", other.url)
    assert (result.exit_code, "no queue 'none' in vhost '/'" in result.stderr) == (69, True)
    result = ctl(ours, "drain", "none", "--from", ours.url, "--to", other.url)
    assert (result.exit_code, "there is no queue 'none' to be drained" in result.stderr) == (70, True)


async def test_a_queue_that_gives_to_others_only(
    ours: LeveretProcess, other: LeveretProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "SILENCE_S", 0.1)
    declare(ours.url, x_single_active_consumer=True)
    declare(other.url)
    async with await connect(ours.url, reconnect=False) as source, await connect(other.url, reconnect=False) as target:
        channel = await source.channel()
        await channel.qos(1)
        await channel.consume(QUEUE)
        for _ in range(3):
            channel.publish(b"", "", QUEUE)
        with pytest.raises(drain.DrainStopped, match="delivers them to other consumers: stop those consumers"):
            await drain.Drain(source, QUEUE, target, QUEUE, "guest").run()
    clear(other.url)


def started(source: LeveretProcess, *arguments: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    command = [sys.executable, "-m", "leveret.cli.main", "ctl", "--data-dir", str(source.data_dir), "drain", QUEUE]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_one_that_follows_moves_what_still_comes_until_it_is_interrupted(
    ours: LeveretProcess, other: LeveretProcess
) -> None:
    declare(ours.url)
    declare(other.url)
    work = started(ours, "--to", other.url, "--follow")
    with BlockingConnection(other.url, reconnect=False) as connection, connection.channel() as channel:
        for amount in (10, 30):
            fill(ours.url, 10 if amount == 10 else 20)
            while channel.declare_queue(QUEUE, passive=True).message_count < amount:
                assert work.poll() is None
    work.send_signal(signal.SIGINT)
    output, complaint = work.communicate(timeout=60)
    assert (work.returncode, complaint) == (0, "")
    assert "30 messages moved" in output
    assert bodies(other.url) == [*range(10), *range(20)]
    assert taken(ours.url) == []
    clear(other.url)


@pytest.mark.parametrize("victim", ["command", "source", "target"])
def test_a_kill_in_the_midst_loses_nothing(tmp_path: Path, victim: str) -> None:
    """The next run moves the rest. Only messages under way may be doubled, and, if the source was killed, those whose
    acknowledgement it had not written yet, however many."""
    with LeveretProcess(tmp_path / "source") as source, LeveretProcess(tmp_path / "target") as target:
        fill(source.url, 20_000)
        declare(target.url)
        work = started(source, "--to", target.url, "--prefetch", "100")
        with BlockingConnection(target.url, reconnect=False) as connection, connection.channel() as channel:
            while channel.declare_queue(QUEUE, passive=True).message_count < 1000:
                assert work.poll() is None
        (work if victim == "command" else {"source": source, "target": target}[victim]).kill()
        _, complaint = work.communicate(timeout=60)
        if victim != "command":
            assert work.returncode == 69
            assert "No message was lost" in complaint
            assert "Traceback" not in complaint
            {"source": source, "target": target}[victim].start()
        assert ctl(source, "drain", QUEUE, "--to", target.url).exit_code == 0
        found = Counter(bodies(target.url))
        assert set(found) == set(range(20_000))
        assert max(found.values()) <= 2
        assert victim == "source" or sum(found.values()) <= 20_000 + 100
        assert taken(source.url) == []
