"""Connection URLs: amqp://user:password@host:port/vhost, amqps:// for TLS (RabbitMQ's URI specification)."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from leveret.client.protocol.arguments import check

PORTS = {"amqp": 5672, "amqps": 5671}
# options that are numbers, and the allowed values of others
NUMBERS = ("heartbeat", "connection_timeout")
CONNECTION_TIMEOUT_MS = 60_000
# between two URLs; a comma between two hosts has no scheme behind it
_SEPARATOR = re.compile(r"[,;]\s*(?=amqps?://)")
CHOICES = {"verify": ("verify_peer", "verify_none"), "auth_mechanism": ("plain", "external")}


@dataclass(frozen=True)
class Address:
    """The parts of a connection URL. The password is not in repr, so that it stays out of logs."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: bool
    options: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Host and port, for messages."""
        return f"{self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings for amqps, None for amqp.

        They come from the URL's options, with RabbitMQ's names: cacertfile, certfile and keyfile (paths of PEM files),
        password (of the key), and verify=verify_none, which accepts any certificate. Raises OSError, with the names of
        the files, if they cannot be used.
        """
        if not self.tls:
            return None
        cacertfile, certfile = self.options.get("cacertfile"), self.options.get("certfile")
        try:
            context = ssl.create_default_context(cafile=cacertfile)
        except OSError as error:
            raise OSError(f"cacertfile {cacertfile}: {error.strerror or error}") from None
        context.check_hostname = self.server_name is not None
        if self.options.get("verify") == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certfile is not None:
            keyfile, password = self.options.get("keyfile"), self.options.get("password", "")
            try:
                # without a password to try, OpenSSL would ask on the terminal
                context.load_cert_chain(certfile, keyfile, lambda: password)
            except OSError as error:
                files = f"certfile {certfile}, keyfile {keyfile or certfile}"
                raise OSError(f"{files}: {error.strerror or error}") from None
        return context

    @property
    def server_name(self) -> str | None:
        """The name that the broker's certificate must have: option server_name_indication, or else the host.

        None if that option is "disable": no name is sent, and a certificate that can be verified may have any name.
        """
        name = self.options.get("server_name_indication", self.host)
        return None if name == "disable" else name

    @property
    def heartbeat_s(self) -> int | None:
        """Option heartbeat, in seconds; 0 = no heartbeats, None = the URL has no such option."""
        return int(self.options["heartbeat"]) if "heartbeat" in self.options else None

    @property
    def connection_timeout_ms(self) -> int:
        """Option connection_timeout: milliseconds until the connection must be established, TLS included."""
        return int(self.options.get("connection_timeout", CONNECTION_TIMEOUT_MS))

    @property
    def is_external(self) -> bool:
        """Whether to log in by the client's certificate (auth_mechanism=external), not by user and password."""
        return self.options.get("auth_mechanism") == "external"


def parse_urls(urls: str | Sequence[str]) -> list[Address]:
    """Return the addresses of one broker or of several that are tried in turn.

    Args:
        urls: A URL; URLs in a sequence, or in one string with commas or semicolons between them; or a URL with several
            hosts: "amqp://user:password@one,two:5673/vhost".

    Raises:
        ValueError: No URL, or one of them is wrong, as `parse_url` says.
    """
    check("a connection URL", urls, str | list | tuple, "str, or a list of them")
    listed = _SEPARATOR.split(urls) if isinstance(urls, str) else urls
    found = [parse_url(each) for url in listed for each in _of_each_host(url)]
    if not found:
        raise ValueError("a connection needs at least one URL")
    return found


def _of_each_host(url: str) -> list[str]:
    """Return a URL for each host of this one."""
    check("a connection URL", url, str, "str")
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    return [f"{scheme}{separator}{login}{at}{host}{slash}{path}" for host in hosts.split(",")]


def parse_url(url: str) -> Address:
    """Parse a connection URL. Defaults: user and password guest, host localhost, port 5672 (TLS 5671), vhost "/".

    Raises ValueError that names the wrong part; its text never contains the password.
    """
    check("a connection URL", url, str, "str")
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
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    for name, choice in CHOICES.items():
        if name in options and options[name] not in choice:
            raise ValueError(f"{name} in the connection URL is {' or '.join(choice)}, not {options[name]!r}")
    for name in NUMBERS:
        value = options.get(name, "0")
        if not (value.isascii() and value.isdecimal() and len(value) < 10):
            raise ValueError(f"{name} in the connection URL is a number, not {value!r}")
    return Address(
        host=parts.hostname or "localhost",
        port=port or PORTS[parts.scheme],
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=unquote(path) or "/",
        tls=parts.scheme == "amqps",
        options=options,
    )
