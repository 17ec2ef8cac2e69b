"""Stream files, for applications that read them without AMQP, and leases that protect the files meanwhile.

A user who may consume from a stream may read its files: the read permission is needed.
"""

from __future__ import annotations

from leveret.broker.access.users import READ
from leveret.broker.streams.leases import LeaseRefused
from leveret.broker.streams.stream import Stream
from leveret.control.command import Command, Query
from leveret.control.node import BrokerNode
from leveret.control.refusal import ACCESS_REFUSED, Refused, bad_request, not_found
from leveret.control.sliced import Sliced, Steps
from leveret.control.validation.checks import vhost_named
from leveret.control.views.stream_files import files_view, lease_view


class ListStreamFiles(Query):
    """List the files of all streams, with their paths."""

    def run(self, node: BrokerNode) -> object:
        return Sliced(self._steps(node))

    def _steps(self, node: BrokerNode) -> Steps[object]:
        found = []
        for archive in list(node.host.streams.archives.values()):
            if not archive.stream.is_deleted:
                found.append(files_view(node, archive.stream))
            yield
        return found


class GetStreamFiles(Query):
    """List the files of one stream."""

    vhost: str
    name: str
    user: str | None = None  # whose read permission is needed, None = no check

    def run(self, node: BrokerNode) -> object:
        return files_view(node, _stream(node, self.vhost, self.name, self.user))


class GrantStreamLease(Command):
    """Protect the messages from `first` on that still exist from retention, for duration_ms; answers with the lease."""

    vhost: str
    name: str
    duration_ms: int
    first: int = 0
    holder: str = ""  # name of the lease's holder, for people
    user: str | None = None  # whose read permission is needed, None = no check

    def run(self, node: BrokerNode) -> object:
        stream = _stream(node, self.vhost, self.name, self.user)
        oldest, now_us = int(stream.first), node.host.now_us()
        try:
            lease = stream.leases.grant(self.holder, self.first, oldest, self.duration_ms, now_us)
        except LeaseRefused as error:
            raise bad_request(str(error)) from None
        return lease_view(node, lease)


class RenewStreamLease(Command):
    """Restart the duration of a lease."""

    vhost: str
    name: str
    id: str
    duration_ms: int
    first: int | None = None  # older messages need no protection any more; None = no change
    user: str | None = None  # whose read permission is needed, None = no check

    def run(self, node: BrokerNode) -> object:
        leases = _stream(node, self.vhost, self.name, self.user).leases
        try:
            lease = leases.renew(self.id, self.first, self.duration_ms, node.host.now_us())
        except LeaseRefused as error:
            raise bad_request(str(error)) from None
        if lease is None:
            raise _unknown(self.id, self.name)
        return lease_view(node, lease)


class ReleaseStreamLease(Command):
    """End a lease."""

    vhost: str
    name: str
    id: str
    user: str | None = None  # whose read permission is needed, None = no check

    def run(self, node: BrokerNode) -> None:
        if not _stream(node, self.vhost, self.name, self.user).leases.release(self.id, node.host.now_us()):
            raise _unknown(self.id, self.name)


def _unknown(id: str, name: str) -> Refused:
    return not_found(f"stream '{name}' has no lease '{id}'; it may have expired")


def _stream(node: BrokerNode, vhost: str, name: str, user: str | None) -> Stream:
    """Return the stream. Raises Refused if it does not exist or the user may not read it."""
    found = vhost_named(node, vhost)
    if user is not None and not node.broker.access(user, vhost).may(READ, name):
        reason = f"access to queue '{name}' in vhost '{vhost}' refused for user '{user}'"
        raise Refused(ACCESS_REFUSED, reason)
    stream = found.queues.get(name)
    if not isinstance(stream, Stream):
        raise not_found(f"no stream '{name}' in vhost '{vhost}'")
    return stream
