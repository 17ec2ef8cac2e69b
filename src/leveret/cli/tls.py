"""Settings that concern TLS."""

from __future__ import annotations

from typing import Final

import click

from leveret.cli.configuration.chosen import Chosen
from leveret.cli.configuration.kinds import OFF
from leveret.cli.configuration.settings import SECTIONS, SETTINGS
from leveret.net.connections.certificates import TlsSettings

NAMES: Final = tuple(setting.name for setting in SECTIONS["TLS"])


def settings(chosen: Chosen) -> TlsSettings | None:
    """Return the TLS settings; None without TLS. Raises click.UsageError if they are incomplete."""
    if chosen["tls_port"] is None:
        for name in NAMES:
            if chosen.is_given(name):
                raise click.UsageError(f"{SETTINGS[name].option or name} has no effect without --tls-port")
        if chosen["port"] == OFF:
            raise click.UsageError("--port off needs --tls-port")
        return None
    for name in ("tls_cert", "tls_key"):
        if chosen[name] is None:
            raise click.UsageError(f"--tls-port needs {SETTINGS[name].option}")
    ca = chosen["tls_ca"]
    verify = chosen["tls_verify"] or ("optional" if ca else "none")
    if verify != "none" and not ca:
        raise click.UsageError(f"--tls-verify {verify} needs --tls-ca")
    return TlsSettings(
        chosen["tls_cert"], chosen["tls_key"], ca, verify, chosen["tls_key_password"],
        chosen["ssl_cert_login_from"], chosen["ssl_cert_login_san_type"], chosen["ssl_cert_login_san_index"],
    )  # fmt: skip
