"""Rows of the metrics of the node as a whole."""

from __future__ import annotations

import os
import platform
import resource
import threading
from collections.abc import Callable, Iterator
from typing import Final

from leveret.broker.counters import Counters
from leveret.broker.dead_letters.deaths import STRATEGIES, TYPES
from leveret.control.metrics.metric import Row, Value
from leveret.control.metrics.scope import Scope
from leveret.control.tables import sayable
from leveret.control.views.node import open_files

PROTOCOL: Final = "amqp091"
PAGE_OCTETS: Final = resource.getpagesize()
TICKS: Final = os.sysconf("SC_CLK_TCK")


def _build(scope: Scope) -> Iterator[Row]:
    node = scope.node
    yield (node.broker.settings.version, node.version, node.core, platform.python_version()), (1,)


def _identity(scope: Scope) -> Iterator[Row]:
    cluster = sayable(node_cluster(scope))
    yield (scope.node.name, cluster, cluster), (1,)


def node_cluster(scope: Scope) -> str:
    """Return the cluster's name."""
    return scope.node.broker.cluster_name.value


def _alarms(scope: Scope) -> Iterator[Row]:
    alarms = scope.node.host.alarms
    is_full = open_files(len(scope.node.host.peers())) >= resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield (), (int(is_full), int(alarms.is_low_on_disk), int(alarms.is_low_on_memory))


def _totals(scope: Scope) -> Iterator[Row]:
    sums = scope.sums
    yield (), (sums.connections, sums.channels, sums.consumers, sums.queues)


def _churn(scope: Scope) -> Iterator[Row]:
    yield (), scope.node.broker.churn.values()


def _node_coarse(scope: Scope) -> Iterator[Row]:
    host = scope.node.host
    sockets = len(host.peers()) + len(host.listeners)
    yield (), (open_files(sockets), sockets, host.alarms.used_octets(), host.alarms.free_octets())


def _node(scope: Scope) -> Iterator[Row]:
    host = scope.node.host
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limits = host.alarms.limits
    uptime_s = (host.now_us() - host.started_us) / 1e6
    yield (), (files, files, limits.memory_octets, limits.disk_free_octets, uptime_s)


def _persister(scope: Scope) -> Iterator[Row]:
    measures = scope.node.broker.log.measures
    count = sum(measures.sync_us.counts)
    yield (
        (),
        (count, int(measures.sync_us.sum) / 1e6, sum(measures.batch_octets.counts), int(measures.batch_octets.sum)),
    )


def _attempts(scope: Scope) -> Iterator[Row]:
    attempts = scope.node.broker.login_throttle
    for protocol in sorted({PROTOCOL, *attempts.succeeded, *attempts.failed}):
        right, wrong = attempts.succeeded.get(protocol, 0), attempts.failed.get(protocol, 0)
        yield (protocol,), (right + wrong, right, wrong)


def _vhosts(scope: Scope) -> Iterator[Row]:
    yield from (((sayable(vhost.name),), (1,)) for vhost in scope.vhosts)


def _global(scope: Scope) -> Iterator[Row]:
    sums = scope.sums
    published = sums.published
    yield (PROTOCOL,), (
        int(published.publish), sums.to_confirm, sums.routed, int(published.drop_unroutable),
        int(published.return_unroutable), int(published.confirm), sums.publishers, sums.consumers,
    )  # fmt: skip


def _by_type(scope: Scope) -> Iterator[Row]:
    for kind, counters in scope.sums.by_type.items():
        yield (PROTOCOL, type_label(kind)), _delivered(counters)


def type_label(kind: str) -> str:
    """Return RabbitMQ's label for a type of queue: the name of the module that implements it."""
    return f"rabbit_{kind}_queue"


def _delivered(counters: Counters) -> tuple[Value, ...]:
    deliver, deliver_no_ack = int(counters.deliver), int(counters.deliver_no_ack)
    get, get_no_ack = int(counters.get), int(counters.get_no_ack)
    return (
        deliver + deliver_no_ack + get + get_no_ack, deliver, deliver_no_ack, get, get_no_ack,
        int(counters.get_empty), int(counters.redeliver), int(counters.ack),
    )  # fmt: skip


def _dead(scope: Scope) -> Iterator[Row]:
    for kind in TYPES[:2]:
        for strategy in STRATEGIES:
            rows = [vhost.tally.deaths.of(kind, strategy) for vhost in scope.vhosts]
            yield (type_label(kind), strategy), tuple(sum(column) for column in zip(*rows, strict=True)) or (0,) * 4


def _times(scope: Scope) -> Iterator[Row]:
    found = scope.node.broker.log.measures
    yield (), tuple(
        [*each.counts, int(each.sum)]
        for each in (
            found.confirm_us, found.batch_octets, found.batch_events, found.sync_us, found.turn_us, found.lag_us,
            found.late_us, found.late_levels_us,
        )
    )  # fmt: skip


def _store(scope: Scope) -> Iterator[Row]:
    files, log = scope.node.host.files(), scope.node.broker.log
    yield (), (
        files.journal, files.journal_octets, files.written_octets, files.spares, log.live(), int(log.size()),
        files.segments, files.segment_octets, int(log.tail_octets),
    )  # fmt: skip


def _pressure(scope: Scope) -> Iterator[Row]:
    yield from (((reason,), (seconds,)) for reason, seconds in scope.node.host.waits_s().items())


def _paused(scope: Scope) -> Iterator[Row]:
    host = scope.node.host
    yield (), (host.paused_count(), int(host.alarms.is_waiting_for_disk))


def _cut(scope: Scope) -> Iterator[Row]:
    cuts = scope.node.broker.cuts
    yield from (((what,), (cuts.get(what, 0),)) for what in ("heartbeat", "send_timeout", "unread"))


REFUSALS: Final = ("protocol", "tls", "timeout", "login", "limit", "vhost", "access")


def _refused(scope: Scope) -> Iterator[Row]:
    refusals = scope.node.broker.refusals
    yield from (((what,), (refusals.get(what, 0),)) for what in dict.fromkeys((*REFUSALS, *refusals)))


def _certificates(scope: Scope) -> Iterator[Row]:
    yield from (((file,), (until_us / 1e6,)) for file, until_us in scope.node.host.certificates())


def _process(scope: Scope) -> Iterator[Row]:
    host = scope.node.host
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as file:
        size, resident = (int(pages) * PAGE_OCTETS for pages in file.read().split()[:2])
    yield (), (
        usage.ru_utime + usage.ru_stime, resident, size, open_files(len(host.peers()) + len(host.listeners)),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0], threading.active_count(),
        int(scope.node.broker.timeline.wall_us(host.started_us)) / 1e6,
    )  # fmt: skip


NODE_ROWS: Final[dict[str, Callable[[Scope], Iterator[Row]]]] = {
    "build_info": _build,
    "identity_info": _identity,
    "alarms": _alarms,
    "totals": _totals,
    "connection_churn_metrics": _churn,
    "node_coarse_metrics": _node_coarse,
    "node_metrics": _node,
    "node_persister_metrics": _persister,
    "auth_attempt_metrics": _attempts,
    "vhost_status": _vhosts,
    "global_counters": _global,
    "global_counters_by_type": _by_type,
    "global_counters_dead": _dead,
    "leveret_times": _times,
    "leveret_store": _store,
    "leveret_pressure": _pressure,
    "leveret_paused": _paused,
    "leveret_cut": _cut,
    "leveret_refused": _refused,
    "leveret_certificates": _certificates,
    "process": _process,
}
# groups that are computed from the scope's sums
OF_SUMS: Final = frozenset({"totals", "global_counters", "global_counters_by_type"})
