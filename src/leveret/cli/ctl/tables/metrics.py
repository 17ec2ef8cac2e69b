"""The command that prints metrics, for monitoring systems other than Prometheus."""

from __future__ import annotations

from typing import Any, Final

from leveret.cli.ctl.spec import Given, Option, Spec
from leveret.control.metrics.text import exposition


def _text(items: list[Any], given: Given) -> str:
    return "".join(exposition(items)).rstrip("\n")


SPECS: Final = (
    Spec(
        "metrics", "Monitoring and health checks", "Print the broker's metrics in Prometheus format.",
        options=(Option("per-object", "details", "flag"),), show=_text, is_ours=True,
    ),
)  # fmt: skip
