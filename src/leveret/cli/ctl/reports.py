"""What status, cluster_status and environment say."""

from __future__ import annotations

import json
from typing import Any

from leveret.cli.ctl.spec import Given


def status_report(answer: Any, given: Given) -> str:
    return json.dumps(answer, indent=1)


cluster_report = environment_report = full_report = health = status_report
