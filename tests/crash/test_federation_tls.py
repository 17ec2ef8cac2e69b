"""amqps between real processes: no message crosses before the upstream's identity is verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.client import connect

from ..conformance.secured import Authority, SecuredLeveret
from .federated import EXCHANGE, QUEUE, Node
from .test_federation_kills import linked, status, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def upstream(authority: Authority) -> Iterator[SecuredLeveret]:
    with SecuredLeveret(authority) as process:
        yield process


@pytest.fixture
def down(tmp_path: Path) -> Iterator[Node]:
    node = Node("down", tmp_path)
    with node.process:
        yield node


def url(upstream: SecuredLeveret, host: str, options: str) -> str:
    return f"amqps://guest:guest@{host}:{upstream.tls_port}/%2F?{options}"


async def test_a_message_crosses_when_the_upstream_has_proven_who_it_is(
    upstream: SecuredLeveret, down: Node, authority: Authority
) -> None:
    down.follow(url(upstream, "localhost", f"cacertfile={authority.ca}&verify=verify_peer"))
    async with await down.open() as connection, await connect(upstream.url, reconnect=False) as there:
        await linked(down)
        (await there.channel()).publish(b"over TLS", EXCHANGE, "a")
        consumer = await (await connection.channel()).consume(QUEUE)
        assert (await anext(consumer)).body == b"over TLS"
        assert "guest:guest" not in str(status(down))


@pytest.mark.parametrize(
    ("host", "options", "reason"),
    [
        ("localhost", "", "self-signed certificate in certificate chain"),
        ("localhost", "cacertfile={other}", "self-signed certificate in certificate chain"),
        ("127.0.0.1", "cacertfile={ca}", "IP address mismatch"),
        ("localhost", "cacertfile={ca}&server_name_indication=other", "Hostname mismatch"),
        ("localhost", "cacertfile=/none.pem", "cacertfile /none.pem: No such file or directory"),
    ],
)
async def test_else_none_does_and_the_status_says_why(
    upstream: SecuredLeveret, down: Node, authority: Authority, tmp_path: Path, host: str, options: str, reason: str
) -> None:
    other = Authority(tmp_path / "other")
    down.follow(url(upstream, host, options.format(ca=authority.ca, other=other.ca)))
    await (await down.open()).close()
    await until(lambda: "error" in status(down))
    assert reason in str(status(down)["error"])
    assert status(down)["status"] == "error"
    assert "guest:guest" not in str(status(down))
    assert "guest:guest" not in down.process.output
