"""amqps as clients and operators see it: handshakes, their failures, certificates that change. Uses its own brokers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from leveret.client import BlockingConnection, ConnectionClosed, connect
from leveret.testing.processes import LeveretProcess, free_port

from ..cutting_proxy import CuttingProxy
from .raw import DEADLINE_S, METHOD, PROTOCOL_HEADER, RawClient, encode_method, frame
from .secured import Authority, SecuredLeveret, SecuredRabbitMQ
from .test_robustness import push, rss_octets
from .test_serve import serve

ALICE = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
MESSAGE = bytes(range(256)) * 8192  # takes 128 TLS records or more


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


BROKERS = [SecuredLeveret, pytest.param(SecuredRabbitMQ, marks=pytest.mark.needs("rabbitmq"))]


@pytest.fixture(scope="module", params=BROKERS)
def either(request: pytest.FixtureRequest, authority: Authority) -> Iterator[SecuredLeveret | SecuredRabbitMQ]:
    with request.param(authority) as process:
        yield process


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[SecuredLeveret]:
    with SecuredLeveret(authority) as process:
        yield process


def dial(process: SecuredLeveret | SecuredRabbitMQ) -> socket.socket:
    """Open a TCP connection to the TLS port."""
    return socket.create_connection(("127.0.0.1", process.tls_port), DEADLINE_S)


def serial(process: SecuredLeveret, context: ssl.SSLContext) -> object:
    """Return the serial number of the broker's certificate."""
    with context.wrap_socket(dial(process), server_hostname="localhost") as connection:
        certificate = connection.getpeercert()
        assert certificate is not None
        return certificate["serialNumber"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_messages_of_many_records(
    either: SecuredLeveret | SecuredRabbitMQ, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = authority.stranger()
    context.maximum_version = context.minimum_version = version
    with RawClient.open(either.tls_url, context=context) as client:
        queue = client.call("queue.declare", exclusive=True)["queue"]
        client.call("confirm.select")
        for count in (0, 1, 16384, len(MESSAGE)):
            client.publish(MESSAGE[:count], routing_key=queue)
            client.read("basic.ack")
            assert client.call("basic.get", queue=queue, no_ack=True).body == MESSAGE[:count]


def test_octets_one_by_one(broker: SecuredLeveret, authority: Authority) -> None:
    """Handshake and records may arrive in pieces of any size."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.stranger().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with dial(broker) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def until_done(step: Callable[[], object]) -> object:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    for octet in outgoing.read():
                        connection.sendall(bytes([octet]))
                    incoming.write(connection.recv(7))

        until_done(tls.do_handshake)
        tls.write(PROTOCOL_HEADER)
        start = until_done(lambda: tls.read(7))
    assert isinstance(start, bytes)
    assert start.startswith(b"\x01\x00\x00")


def test_old_versions_are_refused(broker: SecuredLeveret, authority: Authority) -> None:
    context = authority.stranger()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        context.wrap_socket(dial(broker), server_hostname="localhost")
    broker.said("refused: the TLS handshake failed: unsupported protocol")


@pytest.mark.needs("openssl")
def test_renegotiation_is_refused(broker: SecuredLeveret, authority: Authority) -> None:
    """Renegotiation would cost the broker much work for few octets. "R" makes openssl's client request it."""
    where = ["-connect", f"127.0.0.1:{broker.tls_port}", "-CAfile", str(authority.ca), "-tls1_2"]
    done = subprocess.run(["openssl", "s_client", *where], input=b"R\n", capture_output=True, timeout=30, check=False)
    assert b"RENEGOTIATING" in done.stdout + done.stderr
    assert b"no renegotiation" in done.stderr


def test_amqp_without_tls_ends_cleanly(broker: SecuredLeveret) -> None:
    with dial(broker) as connection:
        connection.sendall(PROTOCOL_HEADER)
        assert connection.recv(100) == b""
        port = connection.getsockname()[1]
    assert broker.said("the client speaks AMQP without TLS").count(f"127.0.0.1:{port}") == 1


def test_tls_where_none_is_spoken_ends_cleanly(broker: SecuredLeveret, authority: Authority) -> None:
    """The answer is that of RabbitMQ, and of the specification."""
    with socket.create_connection(("127.0.0.1", broker.port), DEADLINE_S) as connection:
        hello = ssl.MemoryBIO()
        tls = authority.stranger().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        connection.sendall(hello.read())
        assert connection.recv(100) == PROTOCOL_HEADER
        assert connection.recv(100) == b""
    broker.said("refused: the client speaks TLS, but this port does not use TLS")


def test_rubbish_after_the_handshake(broker: SecuredLeveret, authority: Authority) -> None:
    with RawClient.open(broker.tls_url, context=authority.stranger()) as client:
        name = client.socket.getsockname()[1]
        plain = socket.socket(fileno=os.dup(client.socket.fileno()))
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            client.socket.recv(100)
        plain.close()
    line = broker.said(f"127.0.0.1:{name}: connection lost without connection.close")
    assert "BAD_RECORD_MAC" in line


def test_a_goodbye_is_answered(broker: SecuredLeveret, authority: Authority) -> None:
    """close_notify is answered, whether the client or the broker sends it first."""
    with RawClient.open(broker.tls_url, context=authority.stranger()) as client:
        client.call("connection.close", 0, reply_code=200)
        assert isinstance(client.socket, ssl.SSLSocket)
        client.socket.unwrap()  # raises if the socket ends without close_notify
    with RawClient.open(broker.tls_url, context=authority.stranger()) as client:
        client.send("connection.blocked", 0, reason="a client may not say this")
        client.read("connection.close")
        client.send("connection.close-ok", 0)
        assert isinstance(client.socket, ssl.SSLSocket)
        client.socket.suppress_ragged_eofs = False
        assert client.socket.recv(100) == b""


def test_half_a_handshake_is_not_waited_for(authority: Authority) -> None:
    """Neither the broker's stop nor other clients wait for it."""
    with SecuredLeveret(authority) as broker, dial(broker) as silent:
        with RawClient.open(broker.tls_url, context=authority.stranger()) as client:
            client.quiet()
        broker.stop()
        assert silent.recv(100) == b""


def test_who_does_not_read_is_not_waited_for(authority: Authority) -> None:
    """What a consumer does not read stays in its queue, though OpenSSL would accept it all."""
    body, count = bytes(100_000), 3000
    with SecuredLeveret(authority) as alone, RawClient.open(alone.url) as publisher:
        queue = publisher.call("queue.declare", queue="q", durable=True)["queue"]
        with RawClient.open(alone.tls_url, context=authority.stranger()) as deaf:
            deaf.call("basic.consume", queue=queue, no_ack=True)
            publisher.call("confirm.select")
            before, largest = rss_octets(alone), 0
            method = encode_method("basic.publish", routing_key=queue)
            content = publisher.content(1, method, body, {"delivery_mode": 2})
            for sent in range(1, count + 1):
                publisher.socket.sendall(content)
                if sent % 100 == 0:
                    while publisher.read("basic.ack")["delivery_tag"] < sent:
                        pass
                    largest = max(largest, rss_octets(alone) - before)
            assert largest < 200 << 20  # of 300 MB
            assert publisher.call("queue.declare", queue=queue, passive=True)["message_count"] > count / 2
            for got in deaf.deliveries(count):
                assert len(got.body) == len(body)


def test_who_does_not_read_answers_is_not_read_from(authority: Authority) -> None:
    with SecuredLeveret(authority) as alone, RawClient.open(alone.tls_url, context=authority.stranger()) as client:
        client.call("queue.declare", queue="q", exclusive=True)
        client.publish(bytes(100_000), routing_key="q")
        question = frame(METHOD, 1, encode_method("basic.get", queue="q"))
        question += frame(METHOD, 1, encode_method("basic.recover", requeue=True))
        assert push(client, question * 1000, 64 << 20) < 32 << 20  # what the sockets hold
        assert rss_octets(alone) < 300 << 20


# -- certificates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "message"), [
    ("server.pem missing.key", "missing.key can't be read: No such file or directory"),
    ("missing.pem server.key", "missing.pem can't be read: No such file or directory"),
    (". server.key", "can't be read: Is a directory"),
    ("server.pem other.key", "does not belong to the certificate in"),
    ("server.key server.key", "server.key contains no certificate in PEM format"),
    ("server.pem server.pem", "server.pem contains no private key in PEM format"),
    ("server.pem locked.key", "locked.key is encrypted, and tls_key_password is missing or wrong"),
    ("expired.pem expired.key", "expired.pem has expired"),
    ("future.pem future.key", "future.pem is not valid yet"),
    ("server.pem server.key server.key", "server.key contains no certificate in PEM format"),
])
def test_files_that_can_not_be_used(tmp_path: Path, given: str, message: str) -> None:
    authority = Authority(tmp_path)
    authority.server()
    authority.server("other")
    authority.server("expired", days=-1)
    authority.server("future", days=90)
    lock(tmp_path / "server.key", tmp_path / "locked.key")
    options = ("--tls-cert", "--tls-key", "--tls-ca")
    files = [text for pair in zip(options, given.split(), strict=False) for text in (pair[0], str(tmp_path / pair[1]))]
    refused = serve("--port", "0", "--tls-port", "0", *files, "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    [line] = [line for line in refused.stderr.splitlines() if "cannot serve TLS on --tls-port" in line]
    assert message in line
    assert "Traceback" not in refused.stderr


def lock(key: Path, locked: Path) -> None:
    """Write the same key with a password."""
    found = serialization.load_pem_private_key(key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    text = found.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    locked.write_bytes(text)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--tls-port", "0"], "--tls-port needs --tls-cert"),
    (["--tls-port", "0", "--tls-cert", "x"], "--tls-port needs --tls-key"),
    (["--tls-cert", "x"], "--tls-cert has no effect without --tls-port"),
    (["--tls-port", "0", "--tls-cert", "x", "--tls-key", "x", "--tls-verify", "required"], "required needs --tls-ca"),
    (["--port", "off"], "--port off needs --tls-port"),
    (["--port", "of"], "--port must be a whole number from 0 to 65535, or 'off', not 'of'"),
])
def test_options_that_do_not_fit(tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = serve("--data-dir", str(tmp_path), *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr


@pytest.mark.parametrize(("text", "message"), [
    ('tls_verify = "perhaps"', "tls_verify must be one of none, optional, required, not 'perhaps'"),
    ('ssl_cert_login_from = "cn"', "must be one of distinguished_name, common_name, subject_alternative_name"),
    ("tls_port = 65536", "tls_port must be a whole number from 0 to 65535, not 65536"),
    ('port = "on"', "port must be a whole number from 0 to 65535, or 'off', not 'on'"),
])
def test_settings_that_do_not_fit(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text(text)
    refused = serve("--config", str(config), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert message in refused.stderr


def test_all_of_it_from_a_file_and_no_port_without_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    lock(key, key)
    port, tls_port = free_port(), free_port()
    config = tmp_path / "settings.toml"
    config.write_text(
        f'port = "off"\ntls_port = {tls_port}\ntls_cert = "{certificate}"\ntls_key = "{key}"\n'
        f'tls_ca = "{authority.ca}"\ntls_verify = "required"\ntls_key_password = "secret"\n'
    )
    with LeveretFromFile(config) as process:
        assert f"listening on 127.0.0.1:{tls_port} with TLS" in process.output
        assert process.output.count("listening on") == 1
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        url = f"amqp://guest:guest@localhost:{tls_port}"
        with RawClient.open(url, context=authority.client("alice", ALICE)) as client:
            client.quiet()
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            RawClient.open(url, context=authority.stranger())
        process.said("refused: the TLS handshake failed: peer did not return a certificate")
        other = Authority(tmp_path / "other")
        context = other.client("mallory", ALICE)
        context.load_verify_locations(authority.ca)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            RawClient.open(url, context=context)
        process.said("refused: the TLS handshake failed: self-signed certificate in certificate chain")


class LeveretFromFile(LeveretProcess):
    """leveret with all its settings in a file."""

    def __init__(self, config: Path) -> None:
        super().__init__()
        self._config = config

    def command(self) -> Sequence[str | Path]:
        return [*super().command()[:4], "--data-dir", self.data_dir, "--config", self._config]


@pytest.mark.parametrize("how", ["by itself", "SIGHUP"])
def test_a_new_certificate_is_for_new_connections(tmp_path: Path, how: str) -> None:
    authority = Authority(tmp_path)
    context = authority.stranger()
    with SecuredLeveret(authority) as process, RawClient.open(process.tls_url, context=context) as client:
        before = serial(process, context)
        authority.server()
        if how == "SIGHUP":
            os.kill(process.pid, signal.SIGHUP)
        process.said("was reloaded and is valid until")
        assert serial(process, context) != before
        client.quiet()


@pytest.mark.parametrize("how", ["by itself", "SIGHUP"])
def test_a_new_certificate_that_can_not_be_used_changes_nothing(tmp_path: Path, how: str) -> None:
    authority = Authority(tmp_path)
    context = authority.stranger()
    with SecuredLeveret(authority) as process, RawClient.open(process.tls_url, context=context) as client:
        before = serial(process, context)
        (tmp_path / "server.pem").write_text("not yet")
        if how == "SIGHUP":
            os.kill(process.pid, signal.SIGHUP)
        line = process.said("the TLS certificate was not reloaded; the previous one stays in use")
        assert "server.pem contains no certificate in PEM format" in line
        assert serial(process, context) == before
        client.quiet()
        authority.server()
        process.said("was reloaded and is valid until")
        assert serial(process, context) != before
        assert process.output.count("was not reloaded") == 1  # although it was checked more often


# -- leveret's own client ----------------------------------------------------------------------------------------------


async def echo(url: str, is_blocking: bool, cut: Callable[[], None] | None = None) -> bytes:
    """Send a message and receive it again, by the blocking or the asynchronous client.

    cut: Breaks the connection, and the message is sent when it is restored; None = it need not be.
    """
    if is_blocking:
        return await asyncio.to_thread(echo_blocking, url, cut)
    async with await connect(url, reconnect=cut is not None) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("", exclusive=True)
        await channel.confirm_select()
        if cut is not None:
            restored = asyncio.Event()
            connection.on_reconnected(restored.set)
            cut()
            await restored.wait()
        await channel.publish(MESSAGE, "", queue.name)
        got = await channel.get(queue.name, no_ack=True)
        assert got is not None
        return got.body


def echo_blocking(url: str, cut: Callable[[], None] | None) -> bytes:
    with BlockingConnection(url, reconnect=cut is not None) as connection:
        channel = connection.channel()
        queue = channel.declare_queue("", exclusive=True)
        channel.confirm_select()
        if cut is not None:
            restored = threading.Event()
            connection.on_reconnected(restored.set)
            cut()
            while not restored.is_set():  # a blocking connection notices a loss when it reads
                channel.next_delivery(0.1)
        channel.publish(MESSAGE, "", queue.name)
        channel.wait_for_confirms()
        got = channel.get(queue.name, no_ack=True)
        assert got is not None
        return got.body


@pytest.mark.parametrize("is_blocking", [True, False], ids=["blocking", "asyncio"])
async def test_the_client(
    either: SecuredLeveret | SecuredRabbitMQ, authority: Authority, tmp_path: Path, is_blocking: bool
) -> None:
    url = f"{either.tls_url}?cacertfile={authority.ca}"
    assert await echo(url, is_blocking) == MESSAGE
    with pytest.raises(ConnectionClosed, match="CERTIFICATE_VERIFY_FAILED"):
        await echo(either.tls_url, is_blocking)
    with pytest.raises(ConnectionClosed, match="IP address mismatch"):
        await echo(url.replace("localhost", "127.0.0.1"), is_blocking)
    assert await echo(url.replace("localhost", "127.0.0.1") + "&server_name_indication=localhost", is_blocking)
    assert await echo(f"{either.tls_url}?verify=verify_none", is_blocking) == MESSAGE
    with pytest.raises(ConnectionClosed, match=r"cannot connect to .*cacertfile /no/such/file: No such file"):
        await echo(f"{either.tls_url}?cacertfile=/no/such/file", is_blocking)
    with pytest.raises(ConnectionClosed, match=r"the server hung up before the handshake|the server speaks TLS"):
        await echo(f"amqp://localhost:{either.tls_port}", is_blocking)


@pytest.mark.parametrize("is_blocking", [True, False], ids=["blocking", "asyncio"])
async def test_the_client_with_a_certificate(
    either: SecuredLeveret | SecuredRabbitMQ, authority: Authority, is_blocking: bool
) -> None:
    user = f"client-{is_blocking}"
    authority.client("client", x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)]))
    files = f"certfile={authority.directory / 'client.pem'}&keyfile={authority.directory / 'client.key'}"
    url = f"{either.tls_url}?cacertfile={authority.ca}&{files}"
    assert await echo(url, is_blocking) == MESSAGE  # logged in as guest
    with pytest.raises(ConnectionClosed, match=r"offers no EXTERNAL login|Login was refused"):
        await echo(f"{url}&auth_mechanism=external", is_blocking)
    either.administration.call("add_user", name=f"CN={user}", password="secret", tags=[])
    either.administration.call("set_permissions", vhost="/", user=f"CN={user}", configure=".*", write=".*", read=".*")
    assert await echo(f"{url}&auth_mechanism=external", is_blocking) == MESSAGE
    async with CuttingProxy(f"{url}&auth_mechanism=external", random.Random(0)) as proxy:
        loop = asyncio.get_running_loop()
        named = f"{proxy.url}&server_name_indication=localhost"
        assert await echo(named, is_blocking, lambda: loop.call_soon_threadsafe(proxy.cut)) == MESSAGE
        assert proxy.connections == 2


# -- what operators see ------------------------------------------------------------------------------------------------


def test_connections_are_listed_with_what_tls_says(
    either: SecuredLeveret | SecuredRabbitMQ, authority: Authority
) -> None:
    with RawClient.open(either.tls_url, context=authority.client("alice", ALICE)) as client:
        mine = f":{client.socket.getsockname()[1]} -> "

        def found() -> dict[str, Any]:
            while True:  # RabbitMQ's management refreshes its data from time to time
                for each in either.administration.call("list_connections"):
                    if mine in each["name"] and "ssl_protocol" in each:
                        return {key: each[key] for key in each if key.startswith(("ssl", "peer_cert"))}

        certificate = x509.load_pem_x509_certificate((authority.directory / "alice.pem").read_bytes())
        times = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        assert found() == {
            "ssl": True,
            "ssl_protocol": "tlsv1.3",
            "ssl_key_exchange": "any",
            "ssl_cipher": "aes_256_gcm",
            "ssl_hash": "aead",
            "peer_cert_subject": "CN=alice",
            "peer_cert_issuer": certificate.issuer.rfc4514_string(),
            "peer_cert_validity": " - ".join(f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in times),
        }
