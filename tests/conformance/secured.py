"""Certificates, and brokers that use them: leveret and RabbitMQ with the same settings."""

from __future__ import annotations

import datetime
import os
import re
import ssl
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from leveret.testing.processes import LeveretProcess, RabbitMQProcess, free_port

from .administration import Administration, ControlAdministration, HttpAdministration

Names = Sequence[x509.GeneralName]


class Authority:
    """A certificate authority that both ends trust, and the certificates it has signed, as PEM files in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))

    def server(self, name: str = "server", days: int = 30) -> tuple[Path, Path]:
        """Make certificate and key of a broker on localhost.

        The certificate expires in `days` days; if negative, it expired that long ago.
        """
        return self._sign(name, x509.Name([]), [x509.DNSName("localhost")], days)

    def client(self, name: str, subject: x509.Name, alternatives: Names = (), days: int = 30) -> ssl.SSLContext:
        """Return a client's TLS context, with a certificate of this subject and these alternative names."""
        context = self.stranger()
        context.load_cert_chain(*self._sign(name, subject, alternatives, days))
        return context

    def stranger(self) -> ssl.SSLContext:
        """Return a client's TLS context without a certificate."""
        return ssl.create_default_context(cafile=str(self.ca))

    def _sign(self, name: str, subject: x509.Name, alternatives: Names, days: int) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        pem, text = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        authority = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        signer = serialization.load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - datetime.timedelta(days=60))
            .not_valid_after(end)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        paths = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        paths[0].write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(pem))
        paths[1].write_bytes(key.private_bytes(pem, text, serialization.NoEncryption()))
        return paths


class SecuredLeveret(LeveretProcess):
    """leveret with a TLS port, where clients may present a certificate."""

    def __init__(self, authority: Authority, settings: str = "", arguments: Sequence[str] = ()) -> None:
        self.tls_port = free_port()
        certificate, key = authority.server()
        config = authority.directory / "leveret.toml"
        config.write_text(settings)
        tls = ["--tls-port", str(self.tls_port), "--tls-cert", str(certificate), "--tls-key", str(key)]
        super().__init__(arguments=[*tls, "--tls-ca", str(authority.ca), "--config", str(config), *arguments])

    @property
    def tls_url(self) -> str:
        """The URL of the TLS port."""
        return f"amqps://guest:guest@localhost:{self.tls_port}/%2F"

    @property
    def administration(self) -> Administration:
        return ControlAdministration(str(self.data_dir))


class SecuredRabbitMQ(RabbitMQProcess):
    """RabbitMQ with a TLS port, where clients may present a certificate."""

    def __init__(self, authority: Authority) -> None:
        self.tls_port, self._http_port = free_port(), free_port()
        certificate, key = authority.server()
        lines = [
            f"listeners.ssl.default = 127.0.0.1:{self.tls_port}",
            f"ssl_options.cacertfile = {authority.ca}",
            f"ssl_options.certfile = {certificate}",
            f"ssl_options.keyfile = {key}",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = false",
            # with the default of 5 s, a busy machine would see it close the connection in the middle of a handshake
            "ssl_handshake_timeout = 60000",
            "auth_mechanisms.1 = PLAIN",
            "auth_mechanisms.2 = EXTERNAL",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self._http_port}",
        ]
        super().__init__(plugins=["rabbitmq_management", "rabbitmq_auth_mechanism_ssl"], settings="\n".join(lines))

    @property
    def tls_url(self) -> str:
        """The URL of the TLS port."""
        return f"amqps://guest:guest@localhost:{self.tls_port}/%2F"

    @contextmanager
    def named_by(self, settings: str) -> Iterator[None]:
        """Apply ssl_cert_login_… settings, given as leveret's TOML, for a while; RabbitMQ reads them at each login."""
        found = re.findall(r'(\w+) = "?(\w+)"?', settings)
        self._evaluate(f"application:set_env(rabbit, {name}, {value})" for name, value in found)
        try:
            yield
        finally:
            self._evaluate(f"application:unset_env(rabbit, {name})" for name, _ in found)

    def _evaluate(self, calls: Iterable[str]) -> None:
        program = Path(self.program() or "").with_name("rabbitmqctl")
        environment = os.environ | self.environment()
        subprocess.run([program, "eval", f"{', '.join(calls)}."], env=environment, check=True, capture_output=True)

    @property
    def administration(self) -> Administration:
        return HttpAdministration("127.0.0.1", self._http_port)


Secured = SecuredLeveret | SecuredRabbitMQ
