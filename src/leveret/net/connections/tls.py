"""TLS between a TCP socket and its peer: a protocol to the socket, a transport to the peer.

asyncio's own TLS would keep 256 KiB for each connection, and not report why a handshake failed. This keeps only what
OpenSSL needs. All connections decrypt into one buffer, and what arrives is decrypted and handed on at once, so pausing
the socket is all the back-pressure that is needed in both directions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final, cast

from leveret.broker.access.security import Security
from leveret.net.connections import certificate
from leveret.net.connections.certificates import Certificates, words
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.connections.stream import READ_OCTETS_MAX, TcpStream
from leveret.session.output import Buffer

if TYPE_CHECKING:
    from leveret.net.server import Server

logger = logging.getLogger("leveret")

# OpenSSL's buffers grow to the size of what is written into them, and never shrink
PIECE_OCTETS: Final = 64 * 1024
# room for the plain text of one read, plus a record that an earlier read began
PLAIN_OCTETS: Final = READ_OCTETS_MAX + PIECE_OCTETS
HANDSHAKE_S_MAX: Final = 10.0


class TlsAcceptor:
    """What the connections of all TLS listeners share."""

    def __init__(self, server: Server, certificates: Certificates) -> None:
        self.server = server
        self.certificates = certificates
        self.plain = memoryview(bytearray(PLAIN_OCTETS))  # what is decrypted
        self.waiting: set[TlsStream] = set()  # connections in their TLS handshake

    def close(self) -> None:
        """Abort the connections whose TLS handshake is not done."""
        for stream in list(self.waiting):
            stream.abort()


class TlsStream:
    """One TLS connection."""

    def __init__(self, direct: TlsAcceptor) -> None:
        self._direct = direct
        self._input, self._output = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = direct.certificates.context.wrap_bio(self._input, self._output, server_side=True)
        self._peer: PeerProtocol | None = None  # None until the handshake is done
        self._is_first = True
        self._error: ssl.SSLError | ValueError | None = None
        self._is_over = False  # the client has closed its side of the TLS session

    # -- the socket's protocol -----------------------------------------------------------------------------------------

    def connection_made(self, stream: TcpStream) -> None:
        self._tcp = stream
        self.peername, self.sockname, self.place = stream.peername, stream.sockname, stream.place
        host, port = stream.peername[:2]
        self._address = f"{host}:{port}"
        self._direct.waiting.add(self)
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S_MAX, self._is_too_slow)

    def data_received(self, data: bytes) -> None:
        if self._is_first:
            self._is_first = False
            if data[:4] == b"AMQP":
                self._refuse("the client speaks AMQP without TLS, but this port requires TLS")
                return
        plain, size, rest = self._direct.plain, 0, memoryview(data)
        try:
            for start in range(0, len(data), PIECE_OCTETS):
                self._input.write(rest[start : start + PIECE_OCTETS])
                if self._peer is not None or self._shake_hands():
                    size = self._decrypt(plain, size)
        except (ssl.SSLError, ValueError) as error:
            # an SSLError of OpenSSL, or a ValueError for text in a certificate that cannot be decoded
            self._fail(error)
            return
        if size and self._peer is not None:
            self._peer.data_received(bytes(plain[:size]))
        self._send()
        if self._is_over:
            self._hang_up()

    def _decrypt(self, plain: memoryview, size: int) -> int:
        """Decrypt all whole records of the input to plain[size:]; returns the end of the plain text."""
        try:
            while self._input.pending:
                count = self._tls.read(len(plain) - size, plain[size:])
                if not count:
                    self._is_over = True
                    break
                size += cast(int, count)
        except ssl.SSLWantReadError:
            pass  # the rest of a record is still to come
        return size

    def eof_received(self) -> None:
        if self._peer is not None:
            self._peer.eof_received()
        else:
            logger.warning("%s: the client closed the connection during the TLS handshake", self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._direct.waiting.discard(self)
        peer, self._peer = self._peer, None  # the two refer to each other, and the collector is off
        if peer is not None:
            peer.connection_lost(exc or self._error)

    def pause_writing(self) -> None:
        if self._peer is not None:
            self._peer.pause_writing()

    def resume_writing(self) -> None:
        if self._peer is not None:
            self._peer.resume_writing()

    # -- the handshake -------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Continue the handshake; returns whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._timer.cancel()
        self._direct.waiting.discard(self)
        self._peer = self._direct.server.protocol(self._direct.server, self._security())
        self._peer.connection_made(self)
        return True

    def _security(self) -> Security:
        cipher = self._tls.cipher()
        assert cipher is not None
        security = Security(cipher[1].lower(), *certificate.suite(cipher[0]))
        found: dict[str, Any] | None = self._tls.getpeercert()
        if found:
            settings = self._direct.certificates.settings
            security.subject = certificate.distinguished_name(found["subject"])
            security.issuer = certificate.distinguished_name(found["issuer"])
            security.validity = certificate.validity(found)
            security.login = certificate.login(found, settings.login_from, settings.san_type, settings.san_index)
        return security

    def _is_too_slow(self) -> None:
        self._direct.server.broker.refused("timeout")
        logger.warning("%s: closed: TLS handshake not completed within %d s", self._address, HANDSHAKE_S_MAX)
        self._tcp.abort()

    def _refuse(self, why: str) -> None:
        self._direct.server.broker.refused("tls")
        logger.warning("%s: refused: %s", self._address, why)
        self._send()  # OpenSSL's alert
        self._tcp.close()

    # -- endings -------------------------------------------------------------------------------------------------------

    def _fail(self, error: ssl.SSLError | ValueError) -> None:
        """Refuse or abort: the input is not TLS, or violates what was negotiated."""
        if self._peer is None:
            self._refuse(f"the TLS handshake failed: {words(error)}")
            return
        self._error = error
        self._send()
        self._tcp.abort()

    def _hang_up(self) -> None:
        """Answer the client's close_notify, and end."""
        self._say_goodbye()
        if self._peer is not None:
            self._peer.eof_received()

    def _say_goodbye(self) -> None:
        # the client's answer is not awaited
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send()

    def _send(self) -> None:
        if self._output.pending and not self._tcp.is_closing():
            self._tcp.writelines([self._output.read()])

    # -- the peer's transport ------------------------------------------------------------------------------------------

    def writelines(self, buffers: list[Buffer]) -> None:
        if self._tcp.is_closing():
            return
        pieces: list[Buffer] = []
        try:
            for buffer in buffers:
                rest = memoryview(buffer)
                while rest:
                    rest = rest[self._tls.write(rest[:PIECE_OCTETS]) :]
                    pieces.append(self._output.read())
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._tcp.writelines(pieces)

    def close(self) -> None:
        if not self._tcp.is_closing():
            self._say_goodbye()
            self._tcp.close()

    def abort(self) -> None:
        self._tcp.abort()

    def reset(self) -> None:
        self._tcp.reset()

    @property
    def taken(self) -> int:
        return self._tcp.taken

    def is_closing(self) -> bool:
        return self._tcp.is_closing()

    def pause_reading(self) -> None:
        self._tcp.pause_reading()

    def resume_reading(self) -> None:
        self._tcp.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._tcp.get_write_buffer_size()

    def fileno(self) -> int:
        return self._tcp.fileno()
