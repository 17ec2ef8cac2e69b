"""kill -9 while delayed messages are cancelled or rescheduled: all that match are changed, or none."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from leveret.client.blocking import BlockingConnection
from leveret.control.calls.client import ControlClient
from leveret.control.refusal import Refused
from leveret.delay import NSERVICEBUS
from leveret.testing.processes import LeveretProcess

from .load import KILLS

MESSAGES = 3000
YEAR_S = 365 * 24 * 3600
ROUNDS = max(4, KILLS // 4)


def fill(process: LeveretProcess) -> None:
    with BlockingConnection(process.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        NSERVICEBUS.declare_blocking(channel)
        for number in range(MESSAGES):
            NSERVICEBUS.publish_blocking(channel, b"%d" % number, ("moved", "gone", "kept")[number % 3], YEAR_S)
        channel.wait_for_confirms()


def call(process: LeveretProcess, command: str, **fields: Any) -> Any:
    with ControlClient(str(process.data_dir), timeout_s=60) as control:
        return control.call(command, **fields)


def rows(process: LeveretProcess) -> dict[str, dict[str, Any]]:
    return {row["destination"]: row for row in call(process, "list_delayed")}


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_kill_while_many_are_changed(process: LeveretProcess, seed: int) -> None:
    """`pytest -rP` shows how many of the changes had been made."""
    generator = random.Random(seed)
    fill(process)
    each, days, made, answered = MESSAGES // 3, 400, 0, 0
    began = time.monotonic()
    assert call(process, "retime_delayed", destination="moved", in_ms=days * 86_400_000)["message_count"] == each
    took_s = time.monotonic() - began
    for round_number in range(ROUNDS):
        before, is_last = rows(process), round_number == ROUNDS - 1
        days += 1
        answers: list[Any] = []

        def change(days: int, is_last: bool, answers: list[Any]) -> None:
            try:
                if is_last:
                    answers.append(call(process, "cancel_delayed", destination="gone"))
                else:
                    answers.append(call(process, "retime_delayed", destination="moved", in_ms=days * 86_400_000))
            except (OSError, Refused):
                pass  # killed before the answer

        changing = threading.Thread(target=change, args=(days, is_last, answers))
        changing.start()
        changing.join(generator.uniform(0, 1.5 * took_s))
        process.kill()
        changing.join()
        process.start()
        after = rows(process)
        assert after["kept"] == before["kept"]
        answered += len(answers)
        if is_last:
            assert "gone" not in after or after["gone"] == before["gone"]
            assert "gone" not in after or not answers
            made += "gone" not in after
            continue
        moved, was = after["moved"], before["moved"]
        assert moved["messages"] == each
        assert moved["next_due_ms"] == moved["last_due_ms"] or moved == was
        is_made = moved["next_due_ms"] > was["last_due_ms"] + 43_200_000
        assert is_made or moved == was
        assert is_made or not answers
        assert after["gone"] == before["gone"]
        made += is_made
    print(f"{ROUNDS} kills, {made} changes made, {answered} of them answered")
