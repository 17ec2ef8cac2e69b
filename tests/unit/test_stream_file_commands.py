"""Commands for a stream's files and leases: results and permissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.broker.streams.leases import DURATION_MS_MAX
from leveret.control.command import COMMANDS
from leveret.control.host import Host
from leveret.control.node import BrokerNode
from leveret.control.refusal import ACCESS_REFUSED, BAD_REQUEST, NOT_FOUND, Refused
from leveret.control.sliced import Sliced
from leveret.net.disk.streams import StreamStorage

from .stream_rig import HOME, TABLES, StreamRig


@dataclass
class Clock:
    """The part of a host that these commands use."""

    rig: StreamRig

    @property
    def streams(self) -> StreamStorage:
        return self.rig.streams

    def now_us(self) -> int:
        return self.rig.bench.now_us


class Operator:
    """Runs commands. Stream "s" has two files, of which its limit keeps one; u may read it, v may not."""

    def __init__(self) -> None:
        self.rig = StreamRig()
        self.rig.declare(**{"x-max-length-bytes": 1})
        self.rig.fill(10)
        self.id = self.rig.grant(0, 1000)
        self.rig.fill(5)
        self.rig.client.queue("q", durable=True)
        definitions = self.rig.bench.broker.definitions
        for user, read in (("u", "^s$"), ("v", "^q$")):
            definitions.put("user", {"name": user, "tags": []})
            definitions.put("permission", {"user": user, "vhost": "/", "configure": "", "write": "", "read": read})
        self.node = BrokerNode(self.rig.bench.broker, cast(Host, Clock(self.rig)), "leveret@test", "/data", "1", "")

    def do(self, command: str, **fields: Any) -> Any:
        answer = msgspec.convert({"command": command, **fields}, COMMANDS[command]).run(self.node)
        if isinstance(answer, Sliced):
            while True:
                try:
                    next(answer.steps)
                except StopIteration as end:
                    answer = end.value
                    break
        return msgspec.json.decode(msgspec.json.encode(answer))

    def refusal(self, command: str, **fields: Any) -> tuple[str, str]:
        before = self.rig.bench.broker.log.size()
        with pytest.raises(Refused) as refused:
            self.do(command, **fields)
        assert self.rig.bench.broker.log.size() == before
        return refused.value.kind, refused.value.reason


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_what_is_said_of_the_files(operator: Operator) -> None:
    rig = operator.rig
    sizes = [segment.size for segment in rig.archive().files.segments]
    for _ in range(3):
        rig.client.publish("s", b"x")
    expected = {
        "vhost": "/", "name": "s", "creation": rig.stream().creation, "schema": None, "first_offset": 0,
        "retained_from_offset": 10, "written_offset": 15, "committed_offset": 15,
        "directory": f"{HOME}/{rig.stream().number}", "tables": f"{TABLES}/%2F/s",
        "native": [[0, 10, sizes[0]], [10, 15, sizes[1]]],
    }  # fmt: skip
    found = operator.do("get_stream_files", vhost="/", name="s", user="u")
    [lease] = found.pop("leases")
    assert found == expected
    wall_us = rig.bench.broker.timeline.wall_us(rig.bench.now_us)
    assert lease == {"id": operator.id, "name": "reader", "first_offset": 0, "expires_ms": wall_us // 1000 + 1000}
    rig.bench.sync()  # the last three messages are committed now
    assert operator.do("list_stream_files") == [expected | {"committed_offset": 18, "leases": [lease]}]


def test_leases_are_had_kept_and_given_back(operator: Operator) -> None:
    rig, place = operator.rig, {"vhost": "/", "name": "s", "user": "u"}
    lease = operator.do("grant_stream_lease", **place, first=12, duration_ms=500, holder="h")
    assert (lease["name"], lease["first_offset"]) == ("h", 12)
    rig.bench.now_us += 400_000
    again = operator.do("renew_stream_lease", **place, id=lease["id"], duration_ms=500)
    assert again == lease | {"expires_ms": lease["expires_ms"] + 400}
    assert operator.do("release_stream_lease", **place, id=operator.id) is None
    rig.look()
    assert rig.natives() == [10]
    assert operator.do("renew_stream_lease", **place, id=lease["id"], duration_ms=500, first=14)["first_offset"] == 14
    rig.bench.now_us += 500_000
    kind, reason = operator.refusal("renew_stream_lease", **place, id=lease["id"], duration_ms=500)
    assert (kind, reason) == (NOT_FOUND, f"stream 's' has no lease '{lease['id']}'; it may have expired")
    assert operator.refusal("release_stream_lease", **place, id=lease["id"])[0] == NOT_FOUND


FIELDS: dict[str, dict[str, Any]] = {
    "get_stream_files": {},
    "grant_stream_lease": {"duration_ms": 1},
    "renew_stream_lease": {"id": "x", "duration_ms": 1},
    "release_stream_lease": {"id": "x"},
}


@pytest.mark.parametrize("command", FIELDS)
def test_whom_it_refuses(operator: Operator, command: str) -> None:
    fields = FIELDS[command]
    reason = "access to queue 's' in vhost '/' refused for user 'v'"
    assert operator.refusal(command, vhost="/", name="s", user="v", **fields) == (ACCESS_REFUSED, reason)
    assert operator.refusal(command, vhost="/", name="none", user="v", **fields)[0] == ACCESS_REFUSED
    assert operator.refusal(command, vhost="/", name="none", **fields) == (NOT_FOUND, "no stream 'none' in vhost '/'")
    assert operator.refusal(command, vhost="/", name="q", **fields) == (NOT_FOUND, "no stream 'q' in vhost '/'")
    assert operator.refusal(command, vhost="none", name="s", **fields)[0] == NOT_FOUND


WRONG = ({"duration_ms": 0}, {"duration_ms": DURATION_MS_MAX + 1}, {"duration_ms": 1, "first": -1})


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_no_lease(operator: Operator, fields: dict[str, int]) -> None:
    assert operator.refusal("grant_stream_lease", vhost="/", name="s", **fields)[0] == BAD_REQUEST
    assert operator.refusal("renew_stream_lease", vhost="/", name="s", id=operator.id, **fields)[0] == BAD_REQUEST
