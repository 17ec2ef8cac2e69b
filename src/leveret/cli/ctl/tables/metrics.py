"""The command that prints metrics, for monitoring systems other than Prometheus."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import Option, Spec
from leveret.control.metrics.text import exposition

SPECS: Final = (
    Spec(
        "metrics", "Monitoring and health checks", "Print the broker's metrics in Prometheus format.",
        options=(Option("per-object", "details", "flag"),), is_ours=True,
        show=lambda items, given: "".join(exposition(items)).rstrip("\n"),
    ),
)  # fmt: skip
