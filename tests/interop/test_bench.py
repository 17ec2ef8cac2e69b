"""`leveret bench` on leveret, and on leveret and RabbitMQ alternately: with small loads, to check that the figures are
complete and add up, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from leveret.cli.bench.command import command
from leveret.cli.bench.scenarios import SCENARIOS
from leveret.control.calls.blocking import ControlClient
from leveret.testing.processes import LeveretProcess

from ..waiting import until

QUICK = {
    "throughput": ["--messages", "5000"],
    "ack": ["--messages", "3000", "--persistent", "--size", "100"],
    "fanout": ["--messages", "1000", "--queues", "2", "--consumers", "2", "--publishers", "2"],
    "latency": ["--duration-s", "0.3"],
    "confirm": ["--messages", "20"],
    "backlog": ["--messages", "3000"],
    "rpc": ["--messages", "500"],
    "delay": ["--messages", "100", "--delay-s", "0.2"],
}


def names(process: LeveretProcess) -> list[str]:
    """Return the queues and exchanges that a bench has declared."""
    with ControlClient(str(process.data_dir)) as control:
        found = [row["name"] for kind in ("queues", "exchanges") for row in control.call(f"list_{kind}")]
    return [name for name in found if name.startswith("leveret-bench")]


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(command, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario(leveret_process: LeveretProcess, name: str) -> None:
    document = run(name, leveret_process.url, *QUICK[name])
    (broker,) = document["brokers"]
    (figures,) = broker["rounds"]
    figure, _, part = document["figure"].partition(".")
    assert (figures[figure][part] if part else figures[figure]) > 0
    assert figures["messages"] > 0
    assert (figures.get("missing", 0), figures["refused"], figures.get("early", 0)) == (0, 0, 0)
    assert figures["broker_cpu_us_per_message"] > 0
    assert all(share >= 0 for share in figures["generator_cpu"].values())
    assert names(leveret_process) == []


def test_so_many_messages_as_were_said(leveret_process: LeveretProcess) -> None:
    document = run("throughput", leveret_process.url, "--messages", "777", "--publishers", "2")
    assert document["brokers"][0]["rounds"][0]["messages"] == 777
    assert document["settings"]["publishers"] == 2


@pytest.mark.needs("rabbitmq")
def test_two_brokers_in_turns(broker: str, rabbitmq: str) -> None:
    command_line = ["throughput", broker, "--against", rabbitmq, "--messages", "2000", "--rounds", "2"]
    result = CliRunner().invoke(command, command_line)
    assert result.exit_code == 0, result.output
    said = [line.partition(":")[0] for line in result.stderr.splitlines()]
    first, second = (line.partition(" ")[2] for line in said[:2])
    assert said == [f"1/2 {first}", f"1/2 {second}", f"2/2 {first}", f"2/2 {second}"]
    assert first.startswith("leveret ")
    assert second.startswith("RabbitMQ 3.")
    row = next(line for line in result.stdout.splitlines() if line.startswith("delivered/s"))
    ours, theirs, ratio = (float(word.replace(",", "")) for word in row.split()[1:])
    assert ratio == pytest.approx(ours / theirs, rel=0.02)


def test_ctrl_c_leaves_nothing_behind(leveret_process: LeveretProcess) -> None:
    arguments = ["bench", "throughput", leveret_process.url, "--duration-s", "60", "--rate", "100"]
    # A shell's background jobs ignore SIGINT, and so would the process started from here.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{listening}; from leveret.cli.main import main; main()"
    bench = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until(lambda: names(leveret_process) != [])
    os.killpg(bench.pid, signal.SIGINT)
    _, said = bench.communicate(timeout=60)
    assert (bench.returncode, said) == (130, "stopped; all declared queues and exchanges were deleted\n")
    assert names(leveret_process) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["throughput", "amqp://guest:secret@127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
        (["throughput", "http://x"], "begins with amqp:// or amqps://"),
        (["throughput", "URL", "--queues", "2"], "2 queues need at least 2 consumers"),
        (["throughput", "URL", "--messages", "5", "--duration-s", "1"], "exclude each other"),
        (["nonsense", "URL"], "'nonsense' is not one of"),
        (["throughput", "URL", "--size", "3"], "3 is not in the range"),
    ],
)
def test_what_can_not_be_done(broker: str, arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(command, [broker if argument == "URL" else argument for argument in arguments])
    assert result.exit_code == 2
    assert text in result.output
    assert "secret" not in result.output
