"""The broker: the state that all connections share, and the work at the end of a turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.broker import enforcement
from leveret.broker.access.access import Access
from leveret.broker.access.login_throttle import LoginThrottle
from leveret.broker.access.quotas import QUOTAS
from leveret.broker.access.users import SHA256, Users, hash_password
from leveret.broker.cluster_name import ClusterName
from leveret.broker.counters import Churn
from leveret.broker.epochs import Epochs
from leveret.broker.exchange_types.recent_history import SNAPSHOT_OCTETS_MAX
from leveret.broker.exchanges import tracing
from leveret.broker.messages.returned import counted
from leveret.broker.names import RandomBytes
from leveret.broker.queues.ack_timeout import AckTimeout
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.requeue_job import RequeueJobs
from leveret.broker.staging.stage import Stage
from leveret.broker.storage.definitions import (
    GLOBAL_PARAMETER,
    OPERATOR_POLICY,
    PARAMETER,
    PERMISSION,
    POLICY,
    TOPIC_PERMISSION,
    USER,
    VHOST,
    VHOST_LIMITS,
    Definition,
    Definitions,
    Key,
)
from leveret.broker.storage.imports import Imports
from leveret.broker.storage.log import (
    CLEAN,
    START,
    Log,
    meta_record,
    page_record,
    returned_record,
    state_record,
)
from leveret.broker.storage.positions import Positions
from leveret.broker.streams.stream import Stream
from leveret.broker.timeline import Timeline
from leveret.broker.timers import Timers
from leveret.broker.vhost import PREDECLARED, VHost
from leveret.broker.vhost_removal import VHostRemoval
from leveret.broker.watcher import Watcher
from leveret.wire import grammar
from leveret.wire.method import method_frame
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

logger = logging.getLogger("leveret.broker")

# how much due work one turn may do, so that connections get their turn after a long pause; less while some is left over
DUE_MAX: Final = 1024
LATE_MAX: Final = 256

CAPABILITIES: dict[str, Value] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


class Settings:
    """What an operator may configure."""

    def __init__(
        self,
        product: str = "RabbitMQ",
        version: str = "3.13.7",
        own_version: str = "",
        cluster_name: str = "",
        host: str = "localhost",
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat_s: int = 60,
        max_message_octets: int = 128 << 20,
        consumer_timeout_ms: int = 30 * 60 * 1000,
        send_timeout_ms: int = 30 * 1000,
        loopback_users: tuple[str, ...] = ("guest",),
        connection_max: int = -1,
        password_hashing: str = SHA256,
        default_user: str = "guest",
        default_pass: str = "guest",
        quotas: dict[str, int] | None = None,
    ) -> None:
        # product and version as clients see them in connection.start; some clients decide by them
        self.product = product
        self.version = version
        self.own_version = own_version  # leveret's own version
        self.cluster_name = cluster_name  # "" = use the name of the data directory: the host's name and a random part
        self.host = host
        self.frame_max = frame_max  # offered in connection.tune, in octets
        self.channel_max = channel_max
        self.heartbeat_s = heartbeat_s  # offered in connection.tune, in seconds
        self.max_message_octets = max_message_octets  # largest message body
        # a channel with a delivery that is unacknowledged for longer is closed; 0 = never
        self.consumer_timeout_ms = consumer_timeout_ms
        # a connection that reads nothing of its output for longer is reset; 0 = never
        self.send_timeout_ms = send_timeout_ms
        self.loopback_users = loopback_users  # users that may log in from this machine only
        self.connection_max = connection_max  # of the whole broker; -1 = no limit
        self.password_hashing = password_hashing  # of new passwords: one of users.ALGORITHMS
        # the user that a new data directory begins with (RabbitMQ's settings of these names)
        self.default_user = default_user
        self.default_pass = default_pass
        # the parameter has only those that differ from the default
        self.quotas = {name: default for name, (default, _) in QUOTAS.items()} | (quotas or {})

    def quota(self, name: str) -> int:
        """Return the value of one of QUOTAS; -1 = no limit."""
        return self.quotas[name]


class Broker:
    """The broker without clock and I/O; random_bytes(number of octets) is all that it takes from outside."""

    def __init__(self, settings: Settings, random_bytes: RandomBytes) -> None:
        self.settings = settings
        self.random_bytes = random_bytes
        self.log = Log()
        self.churn = Churn()
        self.timers = Timers()
        self._is_late = False  # more was due in the last turn than it may handle
        self.timeline = Timeline(self.log)
        self.users = Users(settings.password_hashing)
        self.login_throttle = LoginThrottle()
        self._accesses: dict[tuple[str, str], Access] = {}  # by user and virtual host
        self._greetings: dict[str, bytes] = {}  # connection.start frames, by the mechanisms that they offer
        self.ack_timeout = AckTimeout(settings.consumer_timeout_ms)
        self.requeue_jobs = RequeueJobs()
        self.vhosts: dict[str, VHost] = {}
        self.epochs = Epochs(self.log, int.from_bytes(random_bytes(8), "big", signed=True))
        self.positions = Positions(self.log)
        self.watcher = Watcher()
        self.nowhere = self._vhost("")  # the virtual host of connections that have not opened one yet
        drawn = f"leveret@{settings.host}-{random_bytes(4).hex()}"
        self.cluster_name = ClusterName(self.log, settings.cluster_name, drawn)
        self.imports = Imports(self.log)
        self.definitions = Definitions(self.log)
        self.definitions.listeners += [
            self._vhost_defined, self._vhost_governed, self.users.defined, self._users_changed, self._named,
        ]  # fmt: skip
        self._define_defaults()
        self.is_new = True  # no earlier epoch has stopped in order or recorded anything
        self.connections_opened = 0
        self.refusals: dict[str, int] = {}  # number of refused connections by reason: `refused`
        self.cuts: dict[str, int] = {}  # number of cut connections by reason: `cut`
        self.connection_count = 0  # connections that have opened a virtual host
        self._connections: dict[str, set[Peer]] = {}  # the same, by user
        self.dirty: list[Peer] = []
        self._removals: list[VHostRemoval] = []  # virtual hosts that are being deleted
        self.leavers: list[Peer] = []  # closed connections whose exclusive queues are not all deleted yet
        # why publishes are blocked ("low on disk"), as in connection.blocked; "" = they are not
        self.block_reason = ""
        # whether the client has closed its socket, even if its last bytes are unread; set by the network
        self.has_hung_up: Callable[[Peer], bool] = lambda connection: False
        # called when a login has to wait; the network decides when it goes on
        self.on_login: Callable[[Peer], None] = lambda connection: None
        # called when a connection has opened a virtual host
        self.on_opened: Callable[[Peer], None] = lambda connection: None
        self.on_event: Callable[[str], None] = logger.info
        self.subject: Peer | None = None  # the connection that the current event is about

    def tell(self, subject: Peer, text: str) -> None:
        """Report an event that concerns a connection."""
        self.subject = subject
        self.on_event(text)
        self.subject = None

    def _tell(self, text: str) -> None:
        self.on_event(text)

    def _vhost(self, name: str) -> VHost:
        log, timers, random_bytes = self.log, self.timers, self.random_bytes
        vhost = VHost(
            name, log, timers, self.timeline, self.ack_timeout, self._tell, random_bytes, self.churn, self.requeue_jobs
        )  # fmt: skip
        self._set_days(vhost)
        return vhost

    def _set_days(self, vhost: VHost) -> None:
        vhost.queries.unused_days_max = self.settings.quota("staged_producer_unused_days_max")
        vhost.publishers.unused_days_max = self.settings.quota("publisher_unused_days_max")

    def set_quotas(self, quotas: dict[str, int]) -> None:
        """Replace the quotas; the new ones apply at once."""
        self.settings.quotas = quotas
        for vhost in self.vhosts.values():
            self._set_days(vhost)

    def _define_defaults(self) -> None:
        """Define what a new broker begins with. Nothing is recorded: its first journal file has a snapshot of it."""
        self.log.is_replaying = True
        self.definitions.put(VHOST, {"name": "/", "description": "Default virtual host", "tags": []})
        name, password = self.settings.default_user, self.settings.default_pass
        # "guest" is no secret: a slow hash would only slow each start
        hashing = SHA256 if password == "guest" else self.settings.password_hashing
        password_hash = hash_password(password, self.random_bytes, hashing)
        first: Definition = {"name": name, "password_hash": password_hash, "hashing_algorithm": hashing}
        self.definitions.put(USER, {**first, "tags": ["administrator"], "limits": {}})
        anything: Definition = {"configure": ".*", "write": ".*", "read": ".*"}
        self.definitions.put(PERMISSION, {"user": name, "vhost": "/", **anything})
        self.log.is_replaying = False

    def _vhost_defined(self, kind: str, key: Key, definition: Definition | None) -> None:
        if kind != VHOST:
            return
        if definition is None:
            del self.vhosts[key[0]]
        elif key[0] not in self.vhosts:
            self.vhosts[key[0]] = self._vhost(key[0])
            self.vhosts[key[0]].watcher = self.watcher

    def _users_changed(self, kind: str, key: Key, definition: Definition | None) -> None:
        """Drop all cached permissions, and cached routes, which depend on them."""
        if kind in (USER, PERMISSION, TOPIC_PERMISSION):
            for access in self._accesses.values():
                access.is_stale = True
            self._accesses.clear()
            for vhost in self.vhosts.values():
                vhost.changed()

    def _vhost_governed(self, kind: str, key: Key, definition: Definition | None) -> None:
        """Apply a change of a virtual host's policies, operator policies or limits."""
        vhost = self.vhosts.get(key[0])
        if vhost is None:
            return
        value = None if definition is None else definition.get("value")
        if kind == POLICY:
            vhost.policies.set(key[1], definition, False)
        elif kind == PARAMETER and key[1] == OPERATOR_POLICY:
            vhost.policies.set(key[2], value if isinstance(value, dict) else None, True)
        elif kind == PARAMETER and key[1] == VHOST_LIMITS:
            vhost.limit(value)

    def watch(self, watcher: Watcher) -> None:
        """Report the changes of exchanges in all virtual hosts, future ones included, to this watcher."""
        self.watcher = watcher
        for vhost in self.vhosts.values():
            vhost.watcher = watcher

    def refused(self, what: str) -> None:
        """Count a refused connection: "protocol", "tls", "timeout", "login", "limit", "vhost" or "access"."""
        self.refusals[what] = self.refusals.get(what, 0) + 1

    def cut(self, what: str) -> None:
        """Count a cut connection: its client is silent ("heartbeat"), or does not read ("send_timeout", "unread")."""
        self.cuts[what] = self.cuts.get(what, 0) + 1

    def connected(self, connection: Peer, vhost: VHost) -> None:
        """Count a connection that has opened a virtual host."""
        self.connection_count += 1
        vhost.connection_count += 1
        self._connections.setdefault(connection.user, set()).add(connection)
        self.on_opened(connection)

    def disconnected(self, connection: Peer, vhost: VHost) -> None:
        """Undo `connected`."""
        self.connection_count -= 1
        vhost.connection_count -= 1
        others = self._connections[connection.user]
        others.discard(connection)
        if not others:
            del self._connections[connection.user]

    def connections_of(self, user: str) -> set[Peer]:
        """Return the connections of a user that have opened a virtual host."""
        return self._connections.get(user, set())

    def _named(self, kind: str, key: Key, definition: Definition | None) -> None:
        if kind == GLOBAL_PARAMETER and key == ("cluster_name",):
            self.cluster_name.want("" if definition is None else str(definition["value"]))
            self._greetings.clear()

    def access(self, user: str, vhost: str) -> Access:
        """Return the permissions of a user in a virtual host, from a cache. Ask again once they are stale."""
        found = self._accesses.get((user, vhost))
        if found is None:
            found = self._accesses[(user, vhost)] = Access(self.users.by_name.get(user), vhost)
        return found

    def remove_vhost(self, name: str) -> VHostRemoval:
        """Delete a virtual host and everything in it, in steps. Its connections must be closed first.

        Raises KeyError if it does not exist.
        """
        removal = VHostRemoval(self.vhosts[name], self.definitions, {name for name, _ in PREDECLARED})
        self._removals.append(removal)
        return removal

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host at once; see remove_vhost."""
        removal = self.remove_vhost(name)
        while not removal.is_over:
            removal.step()
        self._removals.remove(removal)

    def delete_user(self, name: str) -> bool:
        """Delete a user with all permissions; return False if the user does not exist."""
        self.definitions.remove_all_of("user", name)
        return self.definitions.remove(USER, name)

    def trace(self, name: str, is_on: bool) -> None:
        """Turn the firehose of a virtual host on or off. Raises KeyError if the virtual host does not exist."""
        if is_on:
            tracing.start(self.vhosts[name], self.cluster_name.value)
        else:
            tracing.stop(self.vhosts[name])

    def server_properties(self) -> dict[str, Value]:
        """Return the server-properties of connection.start."""
        settings = self.settings
        return {
            "capabilities": CAPABILITIES,
            "cluster_name": self.cluster_name.value,
            "copyright": "The leveret authors",
            "information": "Licensed under the Apache License 2.0",
            "platform": "Python",
            "product": settings.product,
            "version": settings.version,
            "leveret_version": settings.own_version,
        }

    def greeting(self, mechanisms: str) -> bytes:
        """Return connection.start as a frame, cached by mechanisms."""
        frame = self._greetings.get(mechanisms)
        if frame is None:
            frame = method_frame(
                0,
                grammar.CONNECTION_START,
                version_major=0,
                version_minor=9,
                server_properties=self.server_properties(),
                mechanisms=mechanisms,
                locales="en_US",
            )
            self._greetings[mechanisms] = frame
        return frame

    def enforce_policies(self, now_us: int) -> bool:
        """Apply changed policies to some of the queues. Returns True if queues are left for the next call."""
        is_left = False
        for vhost in self.vhosts.values():
            is_left = enforcement.enforce(vhost, now_us) or is_left
        return is_left

    def end_turn(self, now_us: int) -> None:
        """Deliver what has become deliverable."""
        for vhost in self.vhosts.values():
            vhost.settle_turn(now_us)
            vhost.share.renew()

    def run_timers(self, now_us: int) -> None:
        """Handle due timers in a turn of their own, up to a limit. timers.next_us() tells when the next one is due."""
        self.catch_up(now_us)
        self.end_turn(now_us)

    @property
    def is_busy(self) -> bool:
        """Whether `requeue_step` has work to do."""
        is_leaving = len(self.log.leaving) > 0 or len(self.leavers) > 0 or len(self._removals) > 0
        return self.requeue_jobs.is_busy or is_leaving

    def requeue_step(self, now_us: int) -> None:
        """Do one step of the background work: requeue jobs, purged and deleted messages, and the deletion of virtual
        hosts and of the exclusive queues of closed connections.

        A turn of its own; to be called in each turn of the loop while is_busy.
        """
        self.catch_up(now_us)
        self.requeue_jobs.step(now_us)
        self.log.settle_leaving()
        if self.leavers:
            self.leavers[0].drop_exclusive()
            if self.leavers[0].has_left():
                self.leavers.pop(0)
        if self._removals:
            if not self._removals[0].is_over:
                self._removals[0].step()
            if self._removals[0].is_over:
                self._removals.pop(0)
        self.end_turn(now_us)

    def catch_up(self, now_us: int) -> None:
        """Handle due timers within a turn, in the order of their due times, up to a limit.

        Must come first in a turn: a message that is published now must not get ahead of one that was due before, since
        only the first message of a queue expires.
        """
        self.timers.now_us = now_us
        left = LATE_MAX if self._is_late else DUE_MAX
        self._is_late = True
        while left > 0:
            timer = self.timers.due(now_us)
            if timer is None:
                self._is_late = False
                break
            next_us = self.timers.next_us()
            until_us = next_us if 0 < next_us < now_us else now_us
            left -= 1 if timer.is_deleted else timer.fire(until_us, left, now_us)

    def snapshot(self) -> list[bytes]:
        """Return records of all durable declarations and of the pages: the beginning of a new journal file."""
        # ids must keep growing even when the files with the last ones are deleted
        records: list[bytes] = [meta_record({"op": "next_id", "id": int(self.log.next_id)})]
        records += self.timeline.snapshot()
        records.append(meta_record(self.cluster_name.record()))
        records += self.definitions.snapshot()
        records += self.imports.snapshot()
        records += self.epochs.snapshot()
        records += self.positions.snapshot()
        predeclared = {name for name, _ in PREDECLARED}
        for vhost in self.vhosts.values():
            records += vhost.queries.snapshot()
            records += vhost.publishers.snapshot()
            for exchange in vhost.exchanges.values():
                if exchange.durable and exchange.name not in predeclared:
                    records.append(meta_record(exchange.record(vhost.name)))
            counting: list[Queue] = []  # queues with delivery counts
            for queue in vhost.holders():
                if queue.is_journalled:
                    if queue.counts_returns:
                        counting.append(queue)
                    if not queue.is_schedule:
                        records.append(queue.encoded())
                    if isinstance(queue, Stream):
                        records += queue.leases.snapshot()
                    elif isinstance(queue, Stage):
                        records += [meta_record(record) for record in queue.list_records()]
                    for message_list in queue.every_list():
                        if message_list.pages:
                            stored = [page for page in message_list.pages if page.is_stored and page.live > 0]
                            records += [page_record(page) for page in stored]
            records.extend(returned_record(*count) for count in counted(vhost, counting))
            for exchange in vhost.exchanges.values():
                for binding in exchange.every():
                    if binding.is_durable:
                        records.append(binding.record(vhost.name))
        records.extend(self._histories())
        records.append(state_record(CLEAN if self.log.is_stopped else START))
        return records

    def _histories(self) -> list[bytes]:
        """Return the newest messages of the recent-history exchanges, within SNAPSHOT_OCTETS_MAX in all."""
        found = [(vhost.name, x) for vhost in self.vhosts.values() for x in vhost.exchanges.values() if x.history]
        records: list[bytes] = []
        for name, exchange in found:
            assert exchange.history is not None
            kept = exchange.history.newest(SNAPSHOT_OCTETS_MAX // len(found))
            records.extend(each.record(name, exchange.name) for each in kept)
        return records

    def stop(self) -> None:
        """Stop in order: record which messages were delivered; all others come back without the redelivered flag."""
        self.requeue_jobs.finish()
        self.log.finish_leaving()
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if queue.is_journalled:
                    for entry in queue.in_memory():
                        if entry.id and entry.redelivered:
                            self.log.delivered(entry.message_list.number, entry.id)
                    for message_list in queue.every_list():
                        self._stop_pages(message_list)
        self.log.clean()

    def _stop_pages(self, message_list: MessageList) -> None:
        """Record again, for pages that were not loaded since, what an earlier stop or crash recorded of deliveries."""
        for page in message_list.pages:
            if page.is_waiting:
                if page.is_redelivered:
                    self.log.page(page)
                for id in sorted(page.delivered):
                    if page.first_id <= id <= page.last_id:
                        self.log.delivered(message_list.number, id)
