"""SASL EXTERNAL: a client's certificate names its user. These tests start their own brokers, also RabbitMQ.

RabbitMQ needs its plugin rabbitmq_auth_mechanism_ssl.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from .raw import RawClient
from .secured import Authority, Secured, SecuredLeveret, SecuredRabbitMQ

REFUSED = (
    403,
    "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile.",
    0, 0,
)  # fmt: skip
Part = tuple[x509.ObjectIdentifier, str]


def subject(*parts: Part | list[Part]) -> x509.Name:
    """Return a name of these parts, the outermost first; a list is a part with several attributes."""
    lists = [part if isinstance(part, list) else [part] for part in parts]
    return x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part]) for part in lists])


# parts of a certificate's subject -> the name as RabbitMQ and leveret write it
NAMES = {
    "plain": (
        subject((NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "x"), (NameOID.COMMON_NAME, "alice")),
        "CN=alice,O=x,C=DE",
    ),
    "special": (
        subject((NameOID.ORGANIZATION_NAME, "A, Inc."), (NameOID.COMMON_NAME, ' #a+b"c<d>e;f\\g=h ')),
        'CN=\\ #a\\+b\\"c\\<d\\>e\\;f\\\\g=h\\ ,O=A\\, Inc.',
    ),
    "hash": (subject((NameOID.COMMON_NAME, "#1")), "CN=\\#1"),
    "foreign": (subject((NameOID.LOCALITY_NAME, "Köln"), (NameOID.COMMON_NAME, "~")), "CN=\\7E,L=K\\C3\\B6ln"),
    "several": (
        subject([(NameOID.COMMON_NAME, "bob"), (NameOID.USER_ID, "b17")], (NameOID.ORGANIZATION_NAME, "z")),
        "O=z,CN=bob+UID=b17",
    ),
    "rare": (
        subject(
            (NameOID.EMAIL_ADDRESS, "c@d.e"), (NameOID.DOMAIN_COMPONENT, "com"), (NameOID.STREET_ADDRESS, "S 1"),
            (NameOID.STATE_OR_PROVINCE_NAME, "NRW"), (NameOID.TITLE, "Dr"), (NameOID.SURNAME, "Sur"),
            (NameOID.GIVEN_NAME, "Giv"), (NameOID.SERIAL_NUMBER, "7"), (NameOID.POSTAL_CODE, "123"),
            (NameOID.PSEUDONYM, "P"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "u"),
        ),
        "OU=u,PSEUDONYM=P,2.5.4.17=123,SERIALNUMBER=7,GIVENNAME=Giv,SN=Sur,TITLE=Dr,ST=NRW,2.5.4.9=S 1,DC=com,"
        "EMAILADDRESS=c@d.e",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def leveret(authority: Authority) -> Iterator[SecuredLeveret]:
    with SecuredLeveret(authority) as process:
        yield process


@pytest.fixture(scope="module")
def theirs(authority: Authority) -> Iterator[SecuredRabbitMQ]:
    with SecuredRabbitMQ(authority) as process:
        yield process


@pytest.fixture(params=["leveret", pytest.param("theirs", marks=pytest.mark.needs("rabbitmq"))])
def broker(request: pytest.FixtureRequest) -> Secured:
    """A broker that uses the whole name of a certificate's subject."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Secured)
    return found


def add_user(broker: Secured, name: str) -> None:
    """Add a user; the password does not matter."""
    broker.administration.call("add_user", name=name, password="secret", tags=[])


def is_let_in(broker: Secured, context: ssl.SSLContext) -> bool:
    """Log in by EXTERNAL, whose response is ignored; return whether that succeeded."""
    with RawClient(broker.tls_url, context) as client:
        client.start(mechanism="EXTERNAL", response="guest")
        answer = client.read("connection.tune", "connection.close")
        is_in = answer.name == "connection.tune"
        assert is_in or answer.error == REFUSED
        # leveret does not offer EXTERNAL if it would refuse it, because py-amqp uses it whenever it is offered
        assert ("EXTERNAL" in client.mechanisms) == (is_in or not isinstance(broker, SecuredLeveret))
        return is_in


@pytest.mark.parametrize("case", NAMES)
def test_the_subject_names_the_user(broker: Secured, authority: Authority, case: str) -> None:
    name, user = NAMES[case]
    context = authority.client(case, name)
    assert not is_let_in(broker, context)
    add_user(broker, user)
    assert is_let_in(broker, context)


def test_whose_password_is_asked_for_needs_no_name_in_the_certificate(broker: Secured, authority: Authority) -> None:
    with RawClient.open(broker.tls_url, context=authority.client("nobody", NAMES["hash"][0])) as client:
        client.quiet()


def test_without_a_certificate_nobody_is_named(broker: Secured, authority: Authority) -> None:
    with RawClient(broker.tls_url, authority.stranger()) as client:
        client.start(mechanism="EXTERNAL", response="guest")
        assert ("EXTERNAL" in client.mechanisms) != isinstance(broker, SecuredLeveret)
        assert client.closed(0) == REFUSED


def test_without_tls_it_is_not_offered(broker: Secured) -> None:
    with RawClient(broker.url) as client:
        client.start(mechanism="EXTERNAL", response="guest")
        assert "EXTERNAL" not in client.mechanisms
        assert "PLAIN" in client.mechanisms


def test_guest_comes_from_here_only_with_a_certificate_too(authority: Authority) -> None:
    """A user named by a certificate is checked like one with a password."""
    name = subject((NameOID.COMMON_NAME, "guest"))
    with SecuredLeveret(authority, 'ssl_cert_login_from = "common_name"') as broker:
        assert is_let_in(broker, authority.client("guest", name))


ALTERNATIVES = [
    x509.DNSName("one.example"), x509.RFC822Name("a@b.c"), x509.DNSName("two.example"),
    x509.UniformResourceIdentifier("urn:d"), x509.IPAddress(ipaddress.ip_address("10.1.2.3")),
]  # fmt: skip


SAN = 'ssl_cert_login_from = "subject_alternative_name"\n'
OTHERS = [
    ('ssl_cert_login_from = "common_name"', "carol,c2"),
    (SAN + "ssl_cert_login_san_index = 1", "two.example"),
    (SAN + 'ssl_cert_login_san_type = "email"', "a@b.c"),
]
OURS = [
    (SAN, "one.example"),
    (SAN + 'ssl_cert_login_san_type = "uri"', "urn:d"),
    (SAN + 'ssl_cert_login_san_type = "ip"', "10.1.2.3"),  # RabbitMQ 3.10.8 has these four octets
]


@pytest.mark.parametrize(("settings", "user"), [*OTHERS, *OURS])
def test_other_names_of_the_user(authority: Authority, settings: str, user: str) -> None:
    with SecuredLeveret(authority, settings) as broker:
        another_name(authority, broker, user)


@pytest.mark.needs("rabbitmq")
@pytest.mark.parametrize(("settings", "user"), OTHERS)
def test_other_names_of_rabbitmqs_user(
    authority: Authority, theirs: SecuredRabbitMQ, settings: str, user: str
) -> None:
    with theirs.named_by(settings):
        another_name(authority, theirs, user)


def another_name(authority: Authority, broker: Secured, user: str) -> None:
    """Check that a user of this name can log in as soon as the user exists."""
    name = subject((NameOID.COMMON_NAME, "carol"), (NameOID.ORGANIZATION_NAME, "x"), (NameOID.COMMON_NAME, "c2"))
    context = authority.client("carol", name, ALTERNATIVES)
    nameless = authority.client("nameless", subject((NameOID.ORGANIZATION_NAME, "x")))
    assert not is_let_in(broker, context)
    add_user(broker, user)
    assert is_let_in(broker, context)
    assert not is_let_in(broker, nameless)
