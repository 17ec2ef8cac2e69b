"""Connection URLs of the client."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from leveret.client.protocol.url import parse_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://", ("localhost", 5672, "guest", "guest", "/", False)),
        ("amqp://host/", ("host", 5672, "guest", "guest", "/", False)),
        ("amqp://host/%2F", ("host", 5672, "guest", "guest", "/", False)),
        ("amqps://host", ("host", 5671, "guest", "guest", "/", True)),
        ("amqp://u%40x:p%2Fw@host:1234/a%2Fb", ("host", 1234, "u@x", "p/w", "a/b", False)),
        ("amqp://u:@[::1]:99/v", ("::1", 99, "u", "", "v", False)),
    ],
)
def test_parts(url: str, expected: tuple[str, int, str, str, str, bool]) -> None:
    address = parse_url(url)
    parts = (address.host, address.port, address.user, address.password, address.vhost, address.tls)
    assert parts == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host", "amqp:// or amqps://"),
        ("host:5672", "amqp:// or amqps://"),
        ("amqp://host:99999/", "port"),
        ("amqp://host/a/b", "%2F"),
        ("amqps://host?verify=peer", "verify in the connection URL is verify_peer or verify_none, not 'peer'"),
        ("amqps://host?auth_mechanism=x", "auth_mechanism in the connection URL is plain or external, not 'x'"),
    ],
)
def test_what_is_wrong_is_named(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_url(url)


def test_the_password_stays_out_of_repr() -> None:
    assert "secret" not in repr(parse_url("amqp://user:secret@host"))


def test_tls_verifies_unless_told_otherwise() -> None:
    assert parse_url("amqp://host").tls_context() is None
    strict = parse_url("amqps://host").tls_context()
    lax = parse_url("amqps://host?verify=verify_none").tls_context()
    assert strict is not None
    assert lax is not None
    assert strict.verify_mode == ssl.CERT_REQUIRED
    assert strict.check_hostname
    assert lax.verify_mode == ssl.CERT_NONE


def test_files_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    for option in ("cacertfile", "certfile"):
        with pytest.raises(OSError, match=rf"{option} /no/such/file.*No such file or directory"):
            parse_url(f"amqps://host?{option}=/no/such/file").tls_context()
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    with pytest.raises(OSError, match=r"certfile .*rubbish\.pem, keyfile /key\.pem: "):
        parse_url(f"amqps://host?certfile={rubbish}&keyfile=/key.pem").tls_context()


def test_whom_the_broker_must_be_and_who_we_are() -> None:
    assert parse_url("amqps://host").server_name == "host"
    assert parse_url("amqps://host?server_name_indication=other").server_name == "other"
    assert not parse_url("amqps://host?auth_mechanism=plain").is_external
    assert parse_url("amqps://host?auth_mechanism=external").is_external
