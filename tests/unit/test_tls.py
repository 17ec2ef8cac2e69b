"""TLS streams whose peer keeps the broker waiting, and certificate files that are being written."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from leveret.broker.access.security import Security
from leveret.broker.broker import Broker, Settings
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.connections import tls
from leveret.net.connections.certificates import Certificates, TlsSettings
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore


def write_pair(directory: Path) -> TlsSettings:
    """Write a new certificate and its key."""
    pair = trustme.CA().issue_cert("localhost")
    certificate, key = directory / "server.pem", directory / "server.key"
    pair.cert_chain_pems[0].write_to_path(str(certificate))
    pair.private_key_pem.write_to_path(str(key))
    return TlsSettings(str(certificate), str(key))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    disk = MemoryDisk()
    alarms = Alarms(ResourceLimits(0, 1), Gauges(lambda: 1, lambda: 0, lambda: None))
    segments, reserve = SegmentStore(disk, "/segments"), Reserve(disk, "/reserve")
    streams = StreamStore(disk, "/streams")
    server = Server(Broker(Settings(), os.urandom), Journal(disk, "/journal"), segments, streams, reserve, alarms)
    server.recover()
    running = asyncio.create_task(server.run())
    yield server
    server.stopping.set()
    await running


async def test_half_a_handshake_is_cut_off(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S_MAX", 0.01)
    host, port = await server.listen_tls("127.0.0.1", 0, Certificates(write_pair(tmp_path)))
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"\x16\x03\x01\x02\x00")  # the first octets of a ClientHello
    assert await reader.read() == b""
    assert "closed: TLS handshake not completed within" in caplog.text
    writer.close()


async def test_a_certificate_that_can_not_be_read_is_a_line_in_the_log(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def security(stream: tls.TlsStream) -> Security:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")  # as ssl's getpeercert does

    monkeypatch.setattr(tls.TlsStream, "_security", security)
    settings = write_pair(tmp_path)
    host, port = await server.listen_tls("127.0.0.1", 0, Certificates(settings))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    assert await reader.read() == b""
    assert "refused: the TLS handshake failed: 'utf-8' codec can't decode" in caplog.text
    assert "Traceback" not in caplog.text
    writer.close()


async def test_a_connection_without_a_handshake_ends_with_the_broker(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accepted, accept = asyncio.Event(), tls.TlsStream.connection_made

    def connection_made(stream: tls.TlsStream, transport: asyncio.BaseTransport) -> None:
        accept(stream, transport)
        accepted.set()

    monkeypatch.setattr(tls.TlsStream, "connection_made", connection_made)
    host, port = await server.listen_tls("127.0.0.1", 0, Certificates(write_pair(tmp_path)))
    reader, writer = await asyncio.open_connection(host, port)
    await accepted.wait()
    server.stopping.set()
    assert await reader.read() == b""
    assert "TLS handshake not completed" not in caplog.text  # the handshake's time limit was not reached
    writer.close()


def test_files_that_still_change_are_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The certificate is written before its key: while they do not match, nothing is logged."""
    caplog.set_level(logging.INFO)
    settings = write_pair(tmp_path)
    certificates = Certificates(settings)
    before = certificates.context
    other = trustme.CA().issue_cert("localhost")
    other.cert_chain_pems[0].write_to_path(settings.cert)
    certificates.look()
    other.private_key_pem.write_to_path(settings.key)
    certificates.look()
    assert certificates.context is before
    certificates.look()
    assert certificates.context is not before
    assert "was not reloaded" not in caplog.text
    after = certificates.context
    certificates.look()
    assert certificates.context is after


def test_a_file_that_is_gone_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates = Certificates(write_pair(tmp_path))
    before = certificates.context
    (tmp_path / "server.key").unlink()
    for _ in range(5):
        certificates.look()
    assert certificates.context is before
    assert caplog.text.count("server.key can't be read: No such file or directory") == 1
