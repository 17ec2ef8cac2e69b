"""Pipelines that people need, on Structured Streaming: each is a command (``leveret spark NAME``) and a function here.

All of them take a session first, return a :class:`Summary`, raise :class:`PipelineError`, go on from their checkpoint
when they are run again, and change nothing with ``dry_run``. Needs ``leveret[spark]``. docs/guides/spark/pipelines.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from leveret.pipelines.errors import PipelineError
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary, Table

if TYPE_CHECKING:
    from leveret.pipelines.archives.archive import archive
    from leveret.pipelines.audits.audit import audit
    from leveret.pipelines.dead.deadletters import deadletters
    from leveret.pipelines.enriching.enrich import enrich
    from leveret.pipelines.replays.replay import replay
    from leveret.pipelines.schedules.schedule import schedule

__all__ = [
    "PipelineError",
    "Reporter",
    "Summary",
    "Table",
    "archive",
    "audit",
    "deadletters",
    "enrich",
    "replay",
    "schedule",
]

# A pipeline is imported when it is used: what runs on executors needs one of them, and none of them all packages.
_HOMES: Final[dict[str, str]] = {
    "archive": "leveret.pipelines.archives.archive",
    "audit": "leveret.pipelines.audits.audit",
    "deadletters": "leveret.pipelines.dead.deadletters",
    "enrich": "leveret.pipelines.enriching.enrich",
    "replay": "leveret.pipelines.replays.replay",
    "schedule": "leveret.pipelines.schedules.schedule",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'leveret.pipelines' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
