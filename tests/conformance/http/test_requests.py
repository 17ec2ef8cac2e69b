"""HTTP itself: verbs, headers, credentials, and malformed requests."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

from .api import Api
from .pair import Broker, Pair

PATHS = [
    "overview", "queues", "queues/%2F", "queues/%2F/none", "exchanges/%2F/amq.direct", "bindings/%2F", "users",
        "vhosts", "vhosts/none", "whoami", "definitions", "connections", "nodes", "permissions/%2F/none",
    "policies/%2F/none",     "queues/%2F/none/get", "queues/%2F/none/contents",
    "exchanges/%2F/amq.direct/publish", "users/bulk-delete",
    "health/checks/alarms", "aliveness-test/%2F", "global-parameters", "vhost-limits/%2F/max-queues",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_verbs(both: Pair, path: str) -> None:
    for verb in ("HEAD", "OPTIONS", "PATCH", "TRACE", "POST", "DELETE"):
        # RabbitMQ answers some HEADs with a body, which a client would read as the next answer on this connection
        both.call(verb, f"/api/{path}", select=lambda _: None, headers={"connection": "close"})


def test_credentials(both: Pair, brokers: list[Broker]) -> None:
    answers: list[list[object]] = []
    for broker in brokers:
        seen: list[object] = []
        for user, password in (("", ""), ("nobody", "x"), ("guest", "x"), ("guest", ""), ("ü", "ü"), ("x" * 2000, "x")):
            api = Api(broker.api, user, password)
            answer = api.call("GET", "/api/whoami")
            seen.append([user[:9], answer.status, answer.headers.get("www-authenticate"), answer.content.decode()])
            api.close()
        for header in ("Basic", "Basic !!!", "Basic Z3Vlc3Q=", "Bearer x", "Digest x", "basic Z3Vlc3Q6Z3Vlc3Q=", ""):
            api = Api(broker.api, "", "")
            answer = api.call("GET", "/api/whoami", headers={"authorization": header})
            said = answer.content.decode() if answer.status >= 400 else ""
            seen.append([header, answer.status, answer.headers.get("www-authenticate"), said])
            api.close()
        answers.append(seen)
    both.alike("answers", answers)


@pytest.mark.parametrize(
    "headers",
    [
        {"accept": "text/html"},
        {"accept": "application/json"},
        {"accept": "application/bigwig"},
        {"accept": "*/*;q=0.1"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=utf-8"},
        {"accept-encoding": "gzip"},
        {"origin": "http://elsewhere.example"},
        {"range": "bytes=0-1"},
    ],
    ids=str,
)
def test_headers(both: Pair, vhost: str, headers: dict[str, str]) -> None:
    both.call("GET", "/api/vhosts", headers=headers, select=lambda _: None)
    if "origin" not in headers:  # leveret refuses pages of other sites: tests/unit/test_origin.py
        both.call("PUT", f"/api/queues/{vhost}/q", {}, headers=headers)


def test_headers_of_an_answer(both: Pair) -> None:
    for path in ("/api/overview", "/api/queues", "/api/nonsense"):
        for api in both.apis:
            answer = api.call("GET", path)
            assert "access-control-allow-origin" not in answer.headers
            assert int(answer.headers["content-length"]) >= 0 or answer.headers["transfer-encoding"]
    for api in both.apis:
        assert api.call("GET", "/api/overview").headers["cache-control"] == "no-cache"


def test_the_page_and_the_tool(both: Pair) -> None:
    for path in ("/api/", "/api/index.html", "/cli/", "/cli/index.html"):
        for api in both.apis:
            answer = api.call("GET", path)
            assert answer.status in (200, 301, 302), (api.url, path, answer)
    for api in both.apis:
        assert api.call("GET", "/nonsense").status == 404


GUEST = b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b'{"arguments":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b'{"name": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"arguments": {"n": 1e400}}',
        b'{"arguments": {"n": 123456789012345678901234567890}}',
        b'{"arguments": {"n": NaN}}',
        json.dumps({"arguments": {"x": "y" * 1_000_000}}).encode(),
        json.dumps({"arguments": {f"k{n}": n for n in range(20_000)}}).encode(),
        json.dumps({"arguments": {"k" * 256: 1}}).encode(),
    ],
    ids=lambda body: repr(body[:20]),
)
def test_bodies_that_are_too_much(subject: Broker, unique: str, body: bytes) -> None:
    api = Api(subject.api)
    answer = api.call("PUT", f"/api/queues/%2F/{unique}", body)
    assert answer.status in (201, 400, 413), answer
    if answer.status != 201:
        assert set(answer.json) == {"error", "reason"}
    assert api.call("GET", "/api/whoami").status == 200
    api.call("DELETE", f"/api/queues/%2F/{unique}")
    api.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /api/overview HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"AMQP\x00\x00\x09\x01",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /api/\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /api/queues/%2F/%ff%fe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + GUEST,
        b"PUT /api/queues/%2F/x HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"PUT /api/queues/%2F/x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n" + GUEST,
        b"GET /api/overview HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5_000)) + b"\r\n",
    ],
    ids=lambda data: repr(data[:30]),
)
def test_what_is_hardly_http(subject: Broker, data: bytes) -> None:
    address = urlsplit(subject.api)
    with socket.create_connection((address.hostname, address.port), 30) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b"HTTP/1.1 505")), answer[:200]
    api = Api(subject.api)
    assert api.call("GET", "/api/whoami").status == 200
    api.close()
