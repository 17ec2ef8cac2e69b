"""Writes the lists of metrics in docs/reference/metrics.md: metrics_table.py [--check]. With --check it reports whether
they are up to date, and changes nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from leveret.control.metrics.metric import HISTOGRAM, MetricGroup
from leveret.control.metrics.node import NODES
from leveret.control.metrics.objects import OBJECTS
from leveret.control.metrics.own import OWN
from leveret.control.metrics.table import ABSENT, GROUPS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
FACTS = ROOT / "tests" / "interop" / "rabbitmq-metrics-3.10.8.txt"
SECTION = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# prefix of RabbitMQ's metrics that leveret lacks -> the reason
WHY_NOT: dict[str, str] = {
    "erlang_": "of Erlang's virtual machine and its database; `process_…` and `leveret_loop_lag_seconds` instead",
    "rabbitmq_erlang_": "of Erlang: processes, schedulers, its garbage, its network",
    "rabbitmq_raft_": "quorum queues have one copy on one disk; leveret has no Raft",
    "rabbitmq_schema_db_": "of Mnesia: declarations are records of the journal",
    "rabbitmq_msg_store_": "leveret has one journal, no message stores: `leveret_journal_…`, `leveret_segment_…`",
    "rabbitmq_queue_index_": "leveret has no queue index",
    "rabbitmq_io_read": "pages are read back from the page cache; nothing waits for it",
    "rabbitmq_io_seek": "leveret does not seek",
    "rabbitmq_io_reopen": "files stay open",
    "rabbitmq_io_write_time": "writing and syncing are one step: `rabbitmq_io_sync_time_seconds_total`",
    "rabbitmq_channel_process_reductions": "of Erlang's processes",
    "rabbitmq_connection_process_reductions": "of Erlang's processes",
    "rabbitmq_queue_process_reductions": "of Erlang's processes",
    "rabbitmq_queue_head_message_timestamp": "always unknown (NaN) in RabbitMQ, unless messages have timestamps",
    "rabbitmq_queue_disk_": "queues do not read and write by themselves: `leveret_segment_…`",
    "rabbitmq_global_messages_dead_lettered_confirmed": "of at-least-once only: dead letters that arrived",
    "rabbitmq_auth_attempts_detailed_": "attempts by address and user; the HTTP API has them by protocol",
    "rabbitmq_cluster_exchange_name": "`rabbitmq_cluster_exchange_bindings` names all exchanges",
    "telemetry_": "of the scrape itself: Prometheus measures it as `scrape_duration_seconds`",
}


def facts() -> dict[str, tuple[str, str, str]]:
    """Return RabbitMQ's metrics: type, labels of the sums, labels of the details; "": none."""
    lines = [line.split() for line in FACTS.read_text().splitlines() if not line.startswith("#")]
    return {name: (kind, sums.strip("-"), details.strip("-")) for name, kind, sums, details in lines}


def why_not(name: str) -> str:
    """Return why leveret lacks a metric, by the longest prefix that matches. Raises KeyError if there is none."""
    fitting = [start for start in WHY_NOT if name.startswith(start)]
    return WHY_NOT[max(fitting, key=len, default=name)]


def listed(groups: tuple[MetricGroup, ...]) -> str:
    """Return each group with its labels, and a table of its metrics."""
    lines: list[str] = []
    for group in groups:
        labels = ", ".join(f"`{label}`" for label in group.labels)
        what = f"labels {labels}" if labels else "no labels"
        if group.of_objects:
            what += "; the sums have none"
        lines += [f"**{group.name}** ({what})", "", "| metric | type | meaning |", "|---|---|---|"]
        for metric in group.metrics:
            help = metric.help
            if metric.kind == HISTOGRAM:
                low, high = (f"{bound / metric.scale:g}" for bound in (metric.bounds[0], metric.bounds[-1]))
                help += f" {len(metric.bounds)} buckets from {low} to {high}."
            lines.append(f"| `{metric.name}` | {metric.kind} | {help} |")
        lines.append("")
    return "\n".join(lines) + "\n"


def compared() -> str:
    """Return which of RabbitMQ's metrics leveret has under the same name, and which it lacks, and why."""
    ours = {metric.name for group in GROUPS for metric in group.metrics}
    theirs = facts()
    absent: dict[str, list[str]] = {}
    for name in theirs:
        if name not in ours:
            absent.setdefault(why_not(name), []).append(name)
    here = len(theirs) - sum(map(len, absent.values()))
    lines = [f"{here} of {len(theirs)} metrics of RabbitMQ 3.10.8 are here under their names. Not here:", ""]
    lines += ["| metric | why |", "|---|---|"]
    for why, names in absent.items():
        shown = ", ".join(f"`{name}`" for name in names)
        if len(names) > 12:
            start = names[0].split("_")[0]
            shown = f"{len(names)} metrics `{start}_…`"
        lines.append(f"| {shown} | {why} |")
    lines += [
        "",
        "Families of `/metrics/detailed` that are asked for in vain, and left out of the answer as in RabbitMQ:",
        "",
    ]
    lines += ["| family | why |", "|---|---|", *(f"| `{name}` | {why} |" for name, why in ABSENT.items())]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    sections = {"node": listed(NODES), "objects": listed(OBJECTS), "own": listed(OWN), "compared": compared()}
    return SECTION.sub(lambda found: found[1] + sections[found[2]] + found[3], page)


if __name__ == "__main__":
    before = PAGE.read_text()
    after = written(before)
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if before == after else f"{PAGE} is not what tools/metrics_table.py writes")
    PAGE.write_text(after)
