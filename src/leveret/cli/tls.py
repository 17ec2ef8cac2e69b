"""leveret serve's options and settings of TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from leveret.net.certificate import LOGIN_FROM, SAN_TYPES
from leveret.net.certificates import VERIFY, TlsSettings

OFF: Final = "off"
# key of the configuration file -> type; those with a choice of words below
CONFIG: Final[dict[str, type]] = {
    "tls_port": int, "tls_cert": str, "tls_key": str, "tls_ca": str, "tls_verify": str, "tls_key_password": str,
    "ssl_cert_login_from": str, "ssl_cert_login_san_type": str, "ssl_cert_login_san_index": int,
}  # fmt: skip
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "tls_verify": tuple(VERIFY), "ssl_cert_login_from": LOGIN_FROM, "ssl_cert_login_san_type": tuple(SAN_TYPES),
}  # fmt: skip
Command = Callable[..., Any]


class Port(click.IntRange):
    """A port to listen on, or the word that none is wanted."""

    def __init__(self) -> None:
        super().__init__(0, 65535)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or OFF."""
        return value if value == OFF else super().convert(value, param, ctx)


def options(command: Command) -> Command:
    """The options, for the command."""
    given = [
        click.option("--tls-port", type=click.IntRange(0, 65535), help="Port for amqps, beside --port; usually 5671."),
        click.option("--tls-cert", help="PEM file: the broker's certificate and those that lead to its authority."),
        click.option("--tls-key", help="PEM file: the key of that certificate."),
        click.option("--tls-ca", help="PEM file: the authorities whose certificates clients may have."),
        click.option(
            "--tls-verify",
            type=click.Choice(tuple(VERIFY)),
            help="Whether clients are asked for a certificate; optional: they need none.  "
            "[default: optional with --tls-ca, else none]",
        ),
    ]
    for option in reversed(given):
        command = option(command)
    return command


def check(key: str, value: object) -> None:
    """ValueError if a setting that has a choice of words does not have one of them, or a number is negative."""
    if key in CHOICES and value not in CHOICES[key]:
        raise ValueError(f"must be one of {', '.join(CHOICES[key])}, not {value!r}")
    if key in CONFIG and isinstance(value, int) and not 0 <= value <= 65535:
        raise ValueError(f"must be from 0 to 65535, it is {value}")


def settings(chosen: dict[str, object]) -> TlsSettings | None:
    """What was chosen, None without TLS. click.UsageError if something is missing."""
    values: dict[str, Any] = {key: chosen[key] for key in CONFIG if chosen.get(key) is not None}
    if "tls_port" not in values:
        if values:
            raise click.UsageError(f"{_option(next(iter(values)))} has no effect without --tls-port")
        return None
    for key in ("tls_cert", "tls_key"):
        if key not in values:
            raise click.UsageError(f"--tls-port needs {_option(key)}")
    ca = values.get("tls_ca")
    verify = values.get("tls_verify", "optional" if ca else "none")
    if verify != "none" and not ca:
        raise click.UsageError(f"--tls-verify {verify} needs --tls-ca")
    return TlsSettings(
        values["tls_cert"],
        values["tls_key"],
        ca,
        verify,
        values.get("tls_key_password"),
        values.get("ssl_cert_login_from", "distinguished_name"),
        values.get("ssl_cert_login_san_type", "dns"),
        values.get("ssl_cert_login_san_index", 0),
    )


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}" if key in ("tls_cert", "tls_key", "tls_ca", "tls_verify") else key
