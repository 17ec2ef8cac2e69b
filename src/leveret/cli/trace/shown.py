"""A step as a line of text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from leveret.cli.terminal import plain
from leveret.cli.trace.follow import Step

STYLES: Final = {
    "published": "bold cyan", "federated": "bold magenta", "confirmed": "green", "refused": "bold red",
    "delivered": "bold green", "dead-lettered": "bold yellow",
}  # fmt: skip
LATE_MS: Final = 1000


class StepPrinter:
    """A printer of steps, one line each."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)

    def show(self, step: Step) -> None:
        """Print one step: time, kind, message and details."""
        time = datetime.fromtimestamp(step["at_ms"] / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]
        line = Text(f"{time} ", style="dim")
        line.append(f"{step['step']:<14}", style=STYLES[step["step"]])
        line.append(f"{plain(step['message_id'])}  " if step["message_id"] is not None else "")
        line.append(SAID[step["step"]](step))
        late_ms = step.get("late_ms")
        if late_ms is not None:
            word = f"  {-late_ms} ms early" if late_ms < 0 else f"  {late_ms} ms late"
            line.append(word, style="bold red" if late_ms < 0 else "yellow" if late_ms > LATE_MS else "green")
        self._console.print(line)


def _published(step: Step) -> str:
    queues = ", ".join(map(plain, step["queues"])) or "no queue"
    if not step["queues"] and "delay_ms" in step:
        queues = "no queue yet: held back"
    parts = [f"to {_exchange(step)} with key {_keys(step)} → {queues}", f"  by {_who(step)}"]
    if "delay_ms" in step:
        parts.append(f", due in {step['delay_ms'] / 1000:g} s")
    if step.get("is_provisional"):
        parts.append(", in a transaction or stage that may not be committed")
    return "".join(parts)


def _federated(step: Step) -> str:
    way = " → ".join(plain(hop.get("cluster-name") or hop.get("uri", "?")) for hop in step["hops"])
    return f"over a link from {way}: {_published(step)}"


def _confirmed(step: Step) -> str:
    return f"number {step['publish_seq_no']} of {plain(step['connection'])} ({step['channel']})"


def _delivered(step: Step) -> str:
    again = ", redelivered" if step["redelivered"] else ""
    after = f", {step['after_ms']} ms after its publish" if "after_ms" in step else ""
    return f"from queue {plain(step['queue'])} to {_who(step)}{again}{after}"


def _died(step: Step) -> str:
    when = ""
    if step["died_s"] is not None:
        when = f" at {datetime.fromtimestamp(step['died_s']).astimezone().strftime('%H:%M:%S')}"
    times = f", {step['count']} times in total" if step["count"] > 1 else ""
    return f"out of queue {plain(step['queue'])} ({plain(step['reason'])}{when}{times}), from x-death"


SAID: Final[dict[str, Callable[[Step], str]]] = {
    "published": _published, "federated": _federated, "confirmed": _confirmed, "refused": _confirmed,
    "delivered": _delivered, "dead-lettered": _died,
}  # fmt: skip


def _exchange(step: Step) -> str:
    return plain(step["exchange"]) or "(default)"


def _keys(step: Step) -> str:
    return ", ".join(plain(key) for key in step["routing_keys"]) or "''"


def _who(step: Step) -> str:
    return f"{plain(step['connection'])} ({step['channel']}) as {plain(step['user'])}"
