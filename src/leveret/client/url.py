"""Connection URLs: amqp://user:password@host:port/vhost, amqps:// for TLS (RabbitMQ's URI specification)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True)
class Address:
    """Where to connect to and as whom. The password is kept out of repr, so that it stays out of logs."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: bool
    options: dict[str, str] = field(default_factory=dict)

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS settings for amqps, None for amqp.

        Options of the URL, by RabbitMQ's names: cacertfile, certfile and keyfile (paths of PEM files), and
        verify=verify_none, which accepts any certificate. OSError if a file cannot be read.
        """
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.options.get("cacertfile"))
        if self.options.get("verify") == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "certfile" in self.options:
            context.load_cert_chain(self.options["certfile"], self.options.get("keyfile"))
        return context


def parse_url(url: str) -> Address:
    """The parts of a connection URL. What is left out: user and password guest, port 5672 (TLS 5671), vhost "/".

    ValueError that names the part which is wrong; the password is never in its text.
    """
    parts = urlsplit(url)
    if parts.scheme not in PORTS:
        raise ValueError(f"a connection URL begins with amqp:// or amqps://, not {parts.scheme or '(nothing)'!r}")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port of the connection URL is not a number from 1 to 65535") from None
    path = parts.path[1:]
    if "/" in path:
        raise ValueError("the vhost in the connection URL has a bare '/'; write it as %2F")
    return Address(
        host=parts.hostname or "localhost",
        port=port or PORTS[parts.scheme],
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=unquote(path) or "/",
        tls=parts.scheme == "amqps",
        options={name: values[-1] for name, values in parse_qs(parts.query).items()},
    )
