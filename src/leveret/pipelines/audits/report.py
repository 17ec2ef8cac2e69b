"""The report of an audit: one self-contained HTML file with charts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from leveret.pipelines.errors import PipelineError
from leveret.pipelines.summary import Summary, Table, Value


@dataclass(frozen=True)
class Pictures:
    """The data of the charts.

    Attributes:
        width_s: seconds of an interval.
        intervals: broker, ``publish`` or ``deliver``, start in seconds since 1970, count.
        lateness, replies, crossings: a group's name, a bin of ``figures.histograms``, count.
    """

    width_s: int
    intervals: Sequence[tuple[str, str, int, int]]
    lateness: Sequence[tuple[str, int, int]]
    replies: Sequence[tuple[str, int, int]]
    crossings: Sequence[tuple[str, int, int]]


def write(path: str, summary: Summary, pictures: Pictures) -> None:
    """Write the report, replacing an existing file; charts are left out if matplotlib is not installed.

    Raises:
        PipelineError: the file cannot be written.
    """
    target = Path(path).absolute()
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        draft.write_text(html(summary, _drawn(pictures)), encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        raise PipelineError(f"the report {path} can't be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _drawn(pictures: Pictures) -> list[tuple[str, str]]:
    try:
        from leveret.pipelines.audits import drawing
    except ImportError:
        return []
    return drawing.draw(pictures)


def html(summary: Summary, pictures: Sequence[tuple[str, str]]) -> str:
    """Return the page; ``pictures`` has titles and SVG."""
    verdict = "All messages arrived once and on time." if summary.adds_up else "Problems found."
    drawn = "".join(f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in pictures)
    return _PAGE.substitute(
        mood="good" if summary.adds_up else "bad",
        verdict=escape(verdict),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        figures="".join(_tile(name, value) for name, value in summary.figures.items()),
        notes="".join(f"<li>{escape(note)}</li>" for note in summary.notes),
        pictures=drawn or "<p>No charts: matplotlib is not installed, or no message has a time.</p>",
        tables="".join(_table(table) for table in summary.tables),
    )


def _tile(name: str, value: Value) -> str:
    mood = " bad" if name in ("lost", "duplicated", "early") and value else ""
    return f'<div class="tile{mood}"><b>{_text(value)}</b><span>{escape(name.replace("_", " "))}</span></div>'


def _table(table: Table) -> str:
    if not table.rows:
        return f"<h2>{escape(table.title)}</h2><p>None.</p>"
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td{_kind(value)}>{_text(value)}</td>" for value in row) + "</tr>" for row in table.rows
    )
    return f'<h2>{escape(table.title)}</h2><div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _kind(value: Value) -> str:
    return ' class="number"' if isinstance(value, (int, float)) else ""


def _text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else escape(value)


_PAGE: Final = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Audit of messages</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #1c2430; background: #f6f7f9; margin: 0; }
main { max-width: 1180px; margin: 0 auto; padding: 24px; }
h1 { margin: 0 0 4px; font-size: 26px; } h2 { margin: 32px 0 8px; font-size: 18px; }
.verdict { display: inline-block; margin: 12px 0; padding: 8px 14px; border-radius: 6px; font-weight: 600; }
.verdict.good { background: #d9f2e0; color: #11632d; } .verdict.bad { background: #fbdcdc; color: #8d1717; }
.tiles { display: flex; flex-wrap: wrap; gap: 8px; }
.tile { background: #fff; border: 1px solid #dde2e9; border-radius: 6px; padding: 8px 14px; min-width: 84px; }
.tile b { display: block; font-size: 19px; } .tile span { color: #5d6877; font-size: 13px; }
.tile.bad { border-color: #c33; } .tile.bad b { color: #b31d1d; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 12px; margin-top: 20px; }
figure { background: #fff; border: 1px solid #dde2e9; border-radius: 6px; margin: 0; padding: 10px; }
figcaption { font-weight: 600; } figure svg { width: 100%; height: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; background: #fff; font-size: 13px; width: 100%; }
th, td { border: 1px solid #dde2e9; padding: 4px 8px; text-align: left; }
td { white-space: nowrap; } th { background: #eef1f5; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
</style></head><body><main>
<h1>Audit of messages</h1><div>made $made</div>
<div class="verdict $mood">$verdict</div>
<div class="tiles">$figures</div>
<ul>$notes</ul>
<div class="pictures">$pictures</div>
$tables
</main></body></html>
""")
