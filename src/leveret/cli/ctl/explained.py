"""The answer of explain_route as a tree for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from leveret.cli.ctl.spec import Given
from leveret.cli.plain_words import plain_words
from leveret.cli.terminal import plain

YES, NO, MAYBE = "+", "-", "?"
VERDICTS: Final = {"takes": YES, "refuses": "!", "perhaps": MAYBE, "cut": NO}
WORDS: Final = {"takes": "receives it", "refuses": "rejects it", "perhaps": "may receive it", "cut": "is skipped"}
DEATHS: Final = {
    "expired": "when it expires",
    "maxlen": "because the queue is full",
    "rejected": "when it is rejected",
}


def tree(answer: Any, given: Given) -> str:
    """Return the summary, then each exchange with its bindings, each queue, and where its dead letters go."""
    lines = [plain(plain_words(answer["summary"]))]
    lines += [f"  ! {plain(plain_words(text))}" for text in answer["refusals"]]
    if answer["route"] is not None:
        lines += _route(answer["route"], "")
    if "destination" in answer:
        lines += _asked(answer["destination"])
    if answer["is_truncated"]:
        lines.append("(Output is truncated: raise --limit and --depth to see more.)")
    return "\n".join(lines)


def _route(route: Any, indent: str) -> Iterator[str]:
    for step in route["exchanges"]:
        yield from _exchange(step, indent)
    for queue in route["queues"]:
        yield from _queue(queue, indent)
    left = route["queue_count"] - len(route["queues"])
    if left:
        yield f"{indent}… and {left} more queues"


def _exchange(step: Any, indent: str) -> Iterator[str]:
    name = plain(step["exchange"]) or "(default)"
    doubt = "" if step["is_certain"] else ", only if random routing selects it"
    yield f"{indent}exchange {name} ({step['type']}{', internal' if step.get('internal') else ''}){doubt}"
    for text in step["reached"]:
        yield f"{indent}    because {plain(text)}"
    if "note" in step:
        yield f"{indent}    {plain(step['note'])}"
        if step["next"] is not None:
            yield from _route(step["next"], indent + "    ")
        return
    bindings = step["bindings"]
    for row in bindings["shown"]:
        where = f" -> {row['destination_type']} {plain(row['destination'])}" if "destination" in row else ""
        mark = YES if row["matched"] else NO
        yield f"{indent}  {mark} key {plain(row['routing_key'])!r}{where}: {plain(row['reason'])}"
        if "note" in row:
            yield f"{indent}      {row['note']}"
    yield f"{indent}    {bindings['matched']} of {bindings['total']} bindings match"
    alternate = step.get("alternate")
    if alternate is not None:
        taken = "taken" if alternate["taken"] else "not taken"
        yield f"{indent}    alternate exchange {plain(alternate['exchange'])}: {taken}, {plain(alternate['reason'])}"


def _queue(queue: Any, indent: str) -> Iterator[str]:
    name, verdict = plain(queue["queue"]), queue["verdict"]
    yield f"{indent}{VERDICTS[verdict]} queue {name} ({queue['type']}) {WORDS[verdict]}"
    for note in queue["notes"]:
        yield f"{indent}    {plain(note)}"
    dead = queue.get("dead_letter")
    if dead is None:
        return
    if "delay" in dead:
        yield f"{indent}    {plain(dead['delay'])}"
    yield f"{indent}    {DEATHS[dead['reason']]}: to {plain(dead['to'])}"
    if "trouble" in dead:
        yield f"{indent}    ! {plain(dead['trouble'])}"
    if "next" in dead:
        yield from _route(dead["next"], indent + "    ")


def _asked(asked: Any) -> Iterator[str]:
    name = plain(asked["queue"])
    if not asked["exists"]:
        yield f"queue {name}: does not exist"
        return
    yield f"queue {name}: {plain(asked['reason'])}"
    for row in asked["bindings"]:
        mark = YES if row["matched"] else NO
        yield f"  {mark} exchange {plain(row['source'])}, key {plain(row['routing_key'])!r}: {plain(row['reason'])}"
    left = asked["binding_count"] - len(asked["bindings"])
    if left:
        yield f"  … and {left} more bindings"
