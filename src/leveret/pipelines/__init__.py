"""Ready-made pipelines on Structured Streaming; each is a command (``leveret spark NAME``) and a function here.

Each function takes a session first, returns a :class:`Summary`, raises :class:`PipelineError`, resumes from its
checkpoint when it is run again, and changes nothing with ``dry_run``. Needs ``leveret[spark]``. See
docs/guides/spark/pipelines.md.
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

# Pipelines are imported on first use: executors need only one of them, and no pipeline needs every package.
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
