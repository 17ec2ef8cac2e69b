"""The broker's certificate: loaded, tested, and reloaded when its files change."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any, Final, NamedTuple

logger = logging.getLogger("leveret")

# whether clients are asked for a certificate: never; yes, but they need none; yes, and they must have one
VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
EXPIRED: Final = 10  # OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED
NOT_YET: Final = 9  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID
# of each file: time of change, inode and size, which differ if it was replaced
Stamp = tuple[tuple[int, int, int] | None, ...]


class CertificateError(Exception):
    """The files cannot be used; the text says which one, and why."""


class TlsSettings(NamedTuple):
    """The settings of TLS.

    ca: whose certificates clients may have; verify: one of VERIFY; login_from, san_type, san_index: see
    net/connections/certificate.py.
    """

    cert: str
    key: str
    ca: str | None = None
    verify: str = "none"
    key_password: str | None = None
    login_from: str = "distinguished_name"
    san_type: str = "dns"
    san_index: int = 0

    @property
    def files(self) -> list[str]:
        """The paths of all files."""
        return [self.cert, self.key, *([self.ca] if self.ca else [])]


def make_context(settings: TlsSettings) -> tuple[ssl.SSLContext, str]:
    """Make the TLS context of new connections; returns it with the certificate's end of validity in OpenSSL's notation.

    CertificateError if the files cannot be used.
    """
    for path in settings.files:
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            raise CertificateError(f"{path} can't be read: {error.strerror or error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # renegotiation makes a client cause much work with few bytes
    context.options |= ssl.OP_NO_RENEGOTIATION
    trial = _trial(settings.cert)
    _load_pair(context, settings)
    until = _try(context, trial, settings.cert)
    context.verify_mode = VERIFY[settings.verify]
    if settings.ca:
        _load_authorities(context, settings.ca)
    return context, until


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise CertificateError(f"{path} contains no certificate in PEM format") from None


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    is_encrypted = False

    def password() -> str:
        nonlocal is_encrypted
        is_encrypted = True  # if no function were given, OpenSSL would ask on the terminal
        return settings.key_password or ""

    try:
        context.load_cert_chain(settings.cert, settings.key, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key in {settings.key} does not belong to the certificate in {settings.cert}"
        elif is_encrypted:
            why = f"the key in {settings.key} is encrypted, and tls_key_password is missing or wrong"
        elif error.reason in (None, "PEM_LIB", "NO_START_LINE"):
            why = f"{settings.key} contains no private key in PEM format"
        else:
            why = f"{settings.cert} and {settings.key} can't be used: {words(error)}"
        raise CertificateError(why) from None


def _trial(cert: str) -> ssl.SSLContext:
    """A client's context that trusts only this certificate."""
    trial = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trial.check_hostname = False
    trial.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_authorities(trial, cert)
    return trial


def _try(context: ssl.SSLContext, trial: ssl.SSLContext, cert: str) -> str:
    """Test the certificate by a handshake in memory, as a client would; returns the end of its validity."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = context.wrap_bio(there, back, server_side=True), trial.wrap_bio(back, there)
    try:
        _step(client)
        _step(server)
        client.do_handshake()
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == EXPIRED:
            raise CertificateError(f"the certificate in {cert} has expired") from None
        if error.verify_code == NOT_YET:
            raise CertificateError(f"the certificate in {cert} is not valid yet") from None
        raise CertificateError(f"no client would accept the certificate in {cert}: {words(error)}") from None
    except ssl.SSLError as error:
        raise CertificateError(f"the certificate in {cert} can't be used: {words(error)}") from None
    found: dict[str, Any] | None = client.getpeercert()
    assert found is not None  # it was verified
    return str(found["notAfter"])


def _step(end: ssl.SSLObject) -> None:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        pass


def words(error: Exception) -> str:
    """A short text for an error, without OpenSSL's line numbers and capitals."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)


class Certificates:
    """The TLS context for new connections, reloaded when its files change. CertificateError if it cannot be made."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self._used = self._seen = self._stamp()
        self.context, until = make_context(settings)  # existing connections keep the context that they began with
        self.until_us = ssl.cert_time_to_seconds(until) * 1_000_000  # when the certificate expires
        logger.info("the TLS certificate in %s is valid until %s", settings.cert, until)

    def look(self) -> None:
        """Reload the files if they have changed, and no longer change. Called once a second."""
        stamp = self._stamp()
        if stamp != self._used and stamp == self._seen:
            self.reload(self.settings)
        self._seen = stamp

    def reload(self, settings: TlsSettings) -> bool:
        """Load the certificate with these settings. False if that fails; then it is logged, and the old one stays."""
        before, self.settings = self.settings, settings
        self._used = self._stamp()
        try:
            self.context, until = make_context(settings)
        except CertificateError as error:
            self.settings = before
            logger.error("the TLS certificate was not reloaded; the previous one stays in use: %s", error)
            return False
        self.until_us = ssl.cert_time_to_seconds(until) * 1_000_000
        logger.info("the TLS certificate in %s was reloaded and is valid until %s", settings.cert, until)
        return True

    def _stamp(self) -> Stamp:
        return tuple(_file_stamp(path) for path in self.settings.files)


def _file_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
