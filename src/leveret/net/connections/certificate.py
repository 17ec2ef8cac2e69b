"""A certificate in RabbitMQ's notation (rabbit_ssl, 3.10.8, measured), and the user that it names.

The certificate is what ssl.SSLObject.getpeercert() returns; it uses OpenSSL's long names of attributes.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

Certificate = Mapping[str, Any]
Name = tuple[tuple[tuple[str, str], ...], ...]

ATTRIBUTES: Final = {
    "commonName": "CN", "countryName": "C", "domainComponent": "DC", "emailAddress": "EMAILADDRESS",
    "generationQualifier": "GENERATIONQUALIFIER", "givenName": "GIVENNAME", "initials": "INITIALS", "localityName": "L",
    "organizationName": "O", "organizationalUnitName": "OU", "pseudonym": "PSEUDONYM", "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST", "surname": "SN", "title": "TITLE", "userId": "UID",
    # RabbitMQ has no names for these
    "businessCategory": "2.5.4.15", "description": "2.5.4.13", "name": "2.5.4.41", "postalCode": "2.5.4.17",
    "streetAddress": "2.5.4.9", "telephoneNumber": "2.5.4.20", "x500UniqueIdentifier": "2.5.4.45",
}  # fmt: skip
SPECIAL: Final = frozenset(b',+"\\<>;')
# RabbitMQ's ssl_cert_login_from and ssl_cert_login_san_type, with OpenSSL's names of the latter
LOGIN_FROM: Final = ("distinguished_name", "common_name", "subject_alternative_name")
SAN_TYPES: Final = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}


def distinguished_name(name: Name) -> str:
    """A name in the notation of RFC 4514, the last part first: "CN=x,O=y"."""
    return ",".join("+".join(f"{ATTRIBUTES.get(k, k)}={_escaped(v)}" for k, v in part) for part in reversed(name))


def _escaped(value: str) -> str:
    octets = value.encode()
    last = len(octets) - 1
    return "".join(_escaped_octet(octet, at == 0, at == last) for at, octet in enumerate(octets))


def _escaped_octet(octet: int, is_first: bool, is_last: bool) -> str:
    """Escape one byte. RFC 4514 asks for less: RabbitMQ writes everything but ASCII in hexadecimal."""
    if octet < 32 or octet >= 126:
        return f"\\{octet:02X}"
    must = octet in SPECIAL or (octet == ord("#") and is_first) or (octet == ord(" ") and (is_first or is_last))
    return f"\\{octet:c}" if must else chr(octet)


def validity(certificate: Certificate) -> str:
    """The period of validity: "2026-11-21T22:59:11Z - 2026-12-21T22:59:11Z"."""
    return f"{_instant(certificate['notBefore'])} - {_instant(certificate['notAfter'])}"


def _instant(text: str) -> str:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def login(certificate: Certificate, login_from: str, san_type: str, san_index: int) -> str:
    """The user that a certificate names, "" if it names none.

    login_from: one of LOGIN_FROM; several common names are joined with commas. san_type: one of SAN_TYPES; san_index:
    which of the alternative names of this type, from 0.
    """
    if login_from == "distinguished_name":
        return distinguished_name(certificate["subject"])
    if login_from == "common_name":
        return ",".join(value for part in certificate["subject"] for key, value in part if key == "commonName")
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == SAN_TYPES[san_type]]
    return str(names[san_index]) if san_index < len(names) else ""


def suite(name: str) -> tuple[str, str, str]:
    """(key exchange, cipher, hash) of a cipher suite, given OpenSSL's name; in Erlang's terms, as RabbitMQ shows them.
    """
    if name.startswith("TLS_"):  # names of TLS 1.3 suites do not contain the key exchange
        return "any", name[4:].rpartition("_")[0].lower(), "aead"
    *exchange, cipher = name.lower().split("-", 2) if name.startswith(("ECDHE-", "DHE-")) else ("rsa", name.lower())
    keys = "_".join(exchange)
    if cipher == "chacha20-poly1305":
        return keys, "chacha20_poly1305", "aead"
    key, _, rest = cipher.partition("-")
    mode, _, _ = rest.rpartition("-")
    return keys, f"{key[:3]}_{key[3:]}_{mode or 'cbc'}", "aead" if mode else rest
