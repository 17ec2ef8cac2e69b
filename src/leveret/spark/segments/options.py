"""The options of sealed segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AUTO: Final = "auto"
PATH: Final = "path"
HTTP: Final = "http"
AMQP: Final = "amqp"
_MODES: Final = (AUTO, PATH, HTTP, AMQP)


@dataclass(frozen=True)
class SegmentOptions:
    """How sealed messages are read.

    Attributes:
        segments: "path" from the broker's tables directory, "http" from its HTTP API, "amqp" like other messages;
            "auto" uses the first of these that is available.
        tables_dir: the broker's --tables-dir as this machine sees it; None for the path that the broker tells.
        api_url: URL of the broker's HTTP API, which also grants leases.
    """

    segments: str = AUTO
    tables_dir: str | None = None
    api_url: str | None = None

    @staticmethod
    def parse(options: Mapping[str, str]) -> SegmentOptions:
        """Read ``segments``, ``tablesDir`` and ``apiUrl``; ``ValueError`` names the wrong option."""
        segments = options.get("segments", AUTO).lower()
        if segments not in _MODES:
            raise ValueError(f"option segments must be one of {', '.join(_MODES)}, not {options['segments']!r}")
        api_url = options.get("apiUrl") or None
        if api_url is not None and not api_url.startswith(("http://", "https://")):
            raise ValueError(f"option apiUrl must begin with http:// or https://, not {api_url.partition(':')[0]!r}")
        if segments == HTTP and api_url is None:
            raise ValueError("option segments=http needs option apiUrl: the URL of the broker's HTTP API")
        return SegmentOptions(segments, options.get("tablesDir") or None, api_url)
