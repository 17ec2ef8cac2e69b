"""What all pipelines have in common: arguments, output, exit codes."""

from __future__ import annotations

import json
import signal

import click
import pytest
from click.testing import CliRunner

from leveret.cli.spark.running import Running, pipeline
from leveret.cli.spark.telling import Teller
from leveret.pipelines import PipelineError, Reporter, Summary, Table
from leveret.pipelines.errors import cause

SUMMARY = Summary(
    "archive", {"rows": 1234567, "seconds": 1.25}, (Table("by day", ("day", "rows"), (("2013", 7),)),), ("ok",)
)


def test_a_summary_is_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Teller("archive").tell(SUMMARY)
    said = capsys.readouterr().out
    assert "1,234,567" in said
    assert "1.2" in said
    assert "by day" in said
    assert said.endswith("ok\n")


def test_a_summary_is_json_for_programs() -> None:
    assert json.loads(json.dumps(SUMMARY.document()))["figures"] == {"rows": 1234567, "seconds": 1.25}


def test_the_first_signal_asks_and_the_second_one_ends() -> None:
    with Teller("archive") as teller:
        assert not teller.is_ended
        signal.raise_signal(signal.SIGTERM)
        assert teller.is_ended
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_cause_is_the_line_that_tells_a_person_most() -> None:
    text = "job failed\nTraceback (most recent call last):\n  File x\n    call()\nSinkError: 312 NO_ROUTE\n\nat java"
    assert cause(RuntimeError(text)) == "SinkError: 312 NO_ROUTE"
    load = "[ERROR] Failed: leveret.spark.queues.errors.SourceError: there is no queue 'q': declare it\n STATE"
    assert cause(RuntimeError(load)) == "there is no queue 'q': declare it"
    task = "An exception was thrown from the worker:\nleveret.spark.rpc.RpcError: 312 NO_ROUTE: k; start the service"
    assert cause(RuntimeError(task)) == "312 NO_ROUTE: k; start the service"
    assert cause(RuntimeError("plain\nmore")) == "plain"
    assert cause(KeyboardInterrupt()) == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--conf", "spark.master"], "write NAME=VALUE"),
        (["--master", "yarn", "--remote", "sc://host"], "exclude each other"),
    ],
)
def test_wrong_options_are_told(words: list[str], said: str) -> None:
    @click.command("archive")
    @pipeline
    def command(running: Running) -> None:
        running.run(lambda spark, reporter, is_dry: SUMMARY)

    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2
    assert said in result.output


def test_the_reporter_of_programs_says_nothing() -> None:
    reporter = Reporter()
    reporter.phase("x")
    reporter.show("rows", 1)
    assert not reporter.is_ended
    assert issubclass(PipelineError, Exception)
