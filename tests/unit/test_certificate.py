"""Names, times and cipher suites as RabbitMQ writes them. tests/conformance/test_external.py asks RabbitMQ itself."""

from __future__ import annotations

import ssl

import pytest

from leveret.net.connections.certificate import distinguished_name, login, suite, validity


@pytest.mark.parametrize(("name", "expected"), [
    ("TLS_AES_256_GCM_SHA384", ("any", "aes_256_gcm", "aead")),
    ("TLS_CHACHA20_POLY1305_SHA256", ("any", "chacha20_poly1305", "aead")),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", ("ecdhe_ecdsa", "aes_256_gcm", "aead")),
    ("ECDHE-RSA-AES128-GCM-SHA256", ("ecdhe_rsa", "aes_128_gcm", "aead")),
    ("DHE-RSA-CHACHA20-POLY1305", ("dhe_rsa", "chacha20_poly1305", "aead")),
    ("ECDHE-RSA-AES256-SHA384", ("ecdhe_rsa", "aes_256_cbc", "sha384")),
    ("DHE-RSA-AES128-SHA", ("dhe_rsa", "aes_128_cbc", "sha")),
    ("AES256-GCM-SHA384", ("rsa", "aes_256_gcm", "aead")),
    ("AES128-SHA", ("rsa", "aes_128_cbc", "sha")),
])
def test_cipher_suites(name: str, expected: tuple[str, str, str]) -> None:
    assert suite(name) == expected


def test_every_suite_that_may_be_agreed_on_has_words() -> None:
    # a Python that leaves the choice to OpenSSL, as Debian's does, has more; but PSK and SRP never have keys here
    names = [cipher["name"] for cipher in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()]
    for exchange, name, hash in [suite(name) for name in names if "PSK" not in name and "SRP" not in name]:
        assert exchange in {"any", "ecdhe_ecdsa", "ecdhe_rsa", "dhe_rsa", "rsa"}
        assert name.startswith(("aes_128_", "aes_256_")) or name == "chacha20_poly1305"
        assert hash in {"aead", "sha", "sha256", "sha384"}


def test_a_time() -> None:
    times = {"notBefore": "Nov 21 22:59:11 2026 GMT", "notAfter": "Jan  1 00:00:00 3000 GMT"}
    assert validity(times) == "2026-11-21T22:59:11Z - 3000-01-01T00:00:00Z"


def test_an_attribute_that_openssl_does_not_know_has_its_number() -> None:
    assert distinguished_name(((("1.2.3.4", "x"),), (("commonName", "y"),))) == "CN=y,1.2.3.4=x"


def test_an_alternative_name_that_is_not_there_names_nobody() -> None:
    certificate = {"subject": (), "subjectAltName": (("DNS", "a"), ("email", "b"), ("DNS", "c"))}
    assert login(certificate, "subject_alternative_name", "dns", 1) == "c"
    assert login(certificate, "subject_alternative_name", "dns", 2) == ""
    assert login(certificate, "subject_alternative_name", "uri", 0) == ""
    assert login(certificate, "common_name", "dns", 0) == ""
