"""What TLS says of a connection; the network finds it out, the handshake and those who ask for connections use it."""

from __future__ import annotations


class Security:
    """In the words of RabbitMQ's list_connections (3.10.8, measured).

    protocol: "tlsv1.2", "tlsv1.3"; key_exchange: "ecdhe_rsa", with TLS 1.3 "any"; cipher: "aes_256_gcm"; hash: "aead"
    or the MAC's. subject, issuer, validity: of a client certificate that was verified, None without one; login: the
    user that it names, "" = none.
    """

    def __init__(self, protocol: str, key_exchange: str, cipher: str, hash: str) -> None:
        self.protocol = protocol
        self.key_exchange = key_exchange
        self.cipher = cipher
        self.hash = hash
        self.subject: str | None = None
        self.issuer: str | None = None
        self.validity: str | None = None
        self.login = ""
