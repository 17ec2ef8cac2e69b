"""The account for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from leveret.demo.reconcile import Reconciliation


def table(account: Reconciliation, due: int, rates: Mapping[str, float]) -> Table:
    """The account by message ids, one row per stage.

    Args:
        account: what ``reconcile`` found.
        due: how many notices the input makes due.
        rates: messages per second, by stage; a stage without one shows none.
    """
    result = Table(title="Reconciled by message ids", title_justify="left")
    for heading in ("stage", "messages", "lost", "duplicated", "unexpected", "early", "per second"):
        result.add_column(heading, justify="left" if heading == "stage" else "right", no_wrap=True)
    for stage in account.stages:
        if stage.name == "delivered":
            result.add_row("notices due", f"{due:,}", end_section=False)
        result.add_row(
            stage.name,
            f"{stage.messages:,}",
            *(_count(len(ids)) for ids in (stage.lost, stage.duplicated, stage.unexpected)),
            _count(len(stage.early)) if stage.name == "delivered" else "",
            f"{rates[stage.name]:,.0f}" if stage.name in rates else "",
        )
    return result


def _count(faults: int) -> str:
    return f"[bold red]{faults:,}[/]" if faults else "[green]0[/]"


def write(
    path: Path, account: Reconciliation, due: int, rates: Mapping[str, float], facts: Mapping[str, object]
) -> None:
    """Writes the account as JSON.

    Args:
        path: of the file.
        account: what ``reconcile`` found.
        due: how many notices the input makes due.
        rates: messages per second, by stage.
        facts: more about the run.
    """
    stages = {
        stage.name: {
            "messages": stage.messages,
            "lost": list(stage.lost),
            "duplicated": list(stage.duplicated),
            "unexpected": list(stage.unexpected),
            "early": list(stage.early),
            "per_second": round(rates[stage.name]) if stage.name in rates else None,
        }
        for stage in account.stages
    }
    document = {"adds_up": account.adds_up, "notices_due": due, "stages": stages, **facts}
    path.write_text(json.dumps(document, indent=2, default=str) + "\n")
