"""Certificates for TLS tests: those of aiormq's suite, and copies under the names that other suites use."""

import shutil
from pathlib import Path
from typing import Final

from .installation import Installation, call
from .suite import Suite

__all__ = ["certificates", "provide", "provider"]

COPIES: Final = {
    "ca_certificate.pem": "ca.pem",
    "client_certificate.pem": "client.pem",
    "client_key.pem": "client.key",
}
UNKNOWN: Final = ("client_certificate_broken.pem", "client_key_broken.pem")
"""A self-signed pair."""


def provider() -> Suite:
    """Return the suite whose package contains the certificates."""
    [aiormq] = [suite for suite in Suite.load() if suite.name == "aiormq"]
    return aiormq


def certificates() -> Path:
    """Return a directory with ca.pem and the pairs server.pem, server.key and client.pem, client.key."""
    return Installation.of(provider()).source / "tests" / "certs"


def provide(directory: Path) -> None:
    """Create the certificates that py-amqp's package lacks; raise InstallationFailed without openssl."""
    directory.mkdir(exist_ok=True)
    for name, source in COPIES.items():
        shutil.copyfile(certificates() / source, directory / name)
    certificate, key = (str(directory / name) for name in UNKNOWN)
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=nobody", "-days", "3650"]
    call(*new, "-out", certificate, "-keyout", key)
