"""The TLS facts of a connection, which the network finds out for the handshake and for lists of connections."""

from __future__ import annotations


class Security:
    """The TLS facts of a connection, in the words of RabbitMQ's list_connections (3.10.8, measured)."""

    def __init__(self, protocol: str, key_exchange: str, cipher: str, hash: str) -> None:
        self.protocol = protocol  # "tlsv1.2", "tlsv1.3"
        self.key_exchange = key_exchange  # "ecdhe_rsa", with TLS 1.3 "any"
        self.cipher = cipher  # "aes_256_gcm"
        self.hash = hash  # "aead", or that of the MAC
        # of a verified client certificate, None without one
        self.subject: str | None = None
        self.issuer: str | None = None
        self.validity: str | None = None
        self.login = ""  # the user that the certificate names, "" = none
