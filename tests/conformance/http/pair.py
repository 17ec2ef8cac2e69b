"""RabbitMQ and the broker under test, asked the same at the same time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

from ... import waiting
from .api import Answer, Api
from .exceptions import OMITTED, VARYING
from .shape import Patterns, differences

__all__ = ["Answers", "Broker", "Pair"]

SETTLED_S = 12.0  # RabbitMQ's statistics are five seconds old at most, and those of one object come apart
# headers that must be the same, where RabbitMQ sends them
HEADERS = ("content-type", "location", "allow", "www-authenticate")
PLAIN = Patterns({})
HASHED = re.compile(r"~[\w-]{6}\b")
ERLANG = re.compile(rb"EXIT|badarg|function_clause|&lt;&lt;|\{[a-z_]+,|\[\[\d+,|regular expression")
OMIT, VARY = Patterns(OMITTED), Patterns(VARYING)


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Attributes:
        url: of AMQP, as guest on "/".
        api: of HTTP, http://HOST:PORT.
    """

    url: str
    api: str


@dataclass(frozen=True)
class Answers:
    """Both brokers' answers to one request."""

    rabbitmq: Answer
    subject: Answer


class Pair:
    """Two brokers' APIs, asked by the same user.

    Whatever the second answers otherwise than the first is noted; `verify` raises with all of it, so that a test shows
    everything that is wrong with an object and not only the first of it.
    """

    def __init__(self, rabbitmq: Api, subject: Api) -> None:
        self.rabbitmq = rabbitmq
        self.subject = subject
        self._notes: list[str] = []
        self._nodes = node(rabbitmq), node(subject)
        self.is_rabbitmq = subject.call("GET", "/api/overview").headers.get("server") == "Cowboy"
        self._users: list[Pair] = []

    def as_user(self, user: str, password: str = "secret") -> Pair:
        """The same two, asked by somebody else; differences go to the same list."""
        pair = copy(self)
        pair.rabbitmq = self.rabbitmq.as_user(user, password)
        pair.subject = self.subject.as_user(user, password)
        self._users.append(pair)
        return pair

    def call(self, verb: str, path: str, *args: Any, **more: Any) -> Answers:
        """One request to both; see `_call`.

        A question is asked again for a while as long as the answers differ: RabbitMQ's statistics come late, and each
        at its own time.
        """
        before, until_s = len(self._notes), time.monotonic() + SETTLED_S
        answers = self._call(verb, path, *args, **more)
        while verb == "GET" and len(self._notes) > before and time.monotonic() < until_s:
            del self._notes[before:]
            answers = self._call(verb, path, *args, **more)
        return answers

    def _call(
        self,
        verb: str,
        path: str,
        body: object = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        until: Callable[[Any], object] | None = None,
        until_status: int | None = None,
        exact: bool = False,
        select: Callable[[Any], Any] = lambda value: value,
        subject_path: str | None = None,
    ) -> Answers:
        """One request to both.

        Args:
            verb: GET, PUT, …
            path: from /api on, escaped.
            body: see Api.call.
            status: what RabbitMQ must answer, and so the other one, too.
            headers: more of them.
            until: asks each broker again until this is true of the answer's JSON: statistics come late.
            until_status: asks again until this is the status.
            exact: no key may be missing and no value may differ.
            select: what of the answers' JSON is compared.
            subject_path: of the broker under test, where a name cannot be the same.
        """
        enough = condition(until, until_status)
        theirs = path if subject_path is None else subject_path
        one = waited(self.rabbitmq, enough, verb, path, body, headers)
        assert status in (None, one.status), f"RabbitMQ: {verb} {path}: {one.status} {one.content.decode()}"
        try:
            other = waited(self.subject, enough, verb, theirs, body, headers)
        except AssertionError as error:
            self.note(verb, path, str(error))
            return Answers(one, one)
        if one.status == 500:
            # A crash of RabbitMQ's: what we say instead must say whose fault it was.
            if other.status == 500 and self.is_rabbitmq:
                return Answers(one, other)  # a RabbitMQ as the broker under test, which tests the tests
            refused = 400 <= other.status < 500 and set(other.json or ()) == {"error", "reason"}
            if not refused and (verb != "GET" or other.status >= 300):
                self.note(verb, path, f"expected a client's error, got {other.status} {text(other)}")
            return Answers(one, other)
        if one.status != other.status:
            said = f"expected {one.status} {text(one)}, got {other.status} {text(other)}"
            self.note(verb, path, said)
            return Answers(one, other)
        for name in HEADERS:
            theirs, ours = (HASHED.sub("~HASH", each.headers.get(name, "")) for each in (one, other))
            if theirs and theirs != ours:
                self.note(verb, path, f"header {name}: {one.headers[name]!r}, got {other.headers.get(name)!r}")
        self._compare(verb, path, one, other, exact, select)
        return Answers(one, other)

    def _compare(
        self, verb: str, path: str, one: Answer, other: Answer, exact: bool, select: Callable[[Any], Any]
    ) -> None:
        if one.headers.get("content-type") != "application/json" and verb != "HEAD":
            if one.content != other.content and not one.headers.get("content-type", "").startswith("text/html"):
                self.note(verb, path, f"expected {text(one)}, got {text(other)}")
            return
        omitted, varying = (PLAIN, PLAIN) if exact else (OMIT, VARY)
        place = noun(path)
        try:
            got = neutral(other.json, self._nodes[1])
        except ValueError:
            self.note(verb, path, f"no JSON: {text(other)}")
            return
        expected = neutral(one.json, self._nodes[0])
        if one.status >= 400 and ERLANG.search(one.content):
            # The kind of error must be the same; the text shows what Erlang makes of its terms.
            expected = {"error": expected["error"]}
        if one.status >= 400 and isinstance(expected, dict) and VARY.names(f"{place}.reason"):
            expected.pop("reason", None)
        if one.status < 400:
            expected, got = select(expected), select(got)
        for each in differences(expected, got, omitted, varying, place):
            self.note(verb, path, each)

    def note(self, verb: str, path: str, what: str) -> None:
        """Something that is different."""
        self._notes.append(f"{verb} {path}\n    {what}")

    def get(self, path: str, status: int | None = 200, **more: Any) -> Answers:
        """GET; see `call`."""
        return self.call("GET", path, status=status, **more)

    def get_each(self, rabbitmq_path: str, subject_path: str, **more: Any) -> Answers:
        """GET of two things that are the same but for their names."""
        return self.call("GET", rabbitmq_path, status=200, subject_path=subject_path, **more)

    def put(self, path: str, body: object = None, status: int | None = 201, **more: Any) -> Answers:
        """PUT; see `call`."""
        return self.call("PUT", path, body, status, **more)

    def post(self, path: str, body: object = None, status: int | None = 200, **more: Any) -> Answers:
        """POST; see `call`."""
        return self.call("POST", path, body, status, **more)

    def delete(self, path: str, status: int | None = 204, **more: Any) -> Answers:
        """DELETE; see `call`."""
        return self.call("DELETE", path, status=status, **more)

    def verify(self) -> None:
        """Raises AssertionError with everything that was different so far."""
        notes = list(dict.fromkeys(self._notes))
        self._notes.clear()
        assert not notes, f"{len(notes)} differences\n" + "\n".join(notes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pair in (self, *self._users):
            pair.rabbitmq.close()
            pair.subject.close()


def node(api: Api) -> str:
    """The name of a broker's node."""
    return str(api.call("GET", "/api/overview").json["node"])


def neutral(value: Any, name: str) -> Any:
    """A value in which the node has no name of its own, and keys of bindings no hash: each broker has its own."""
    return json.loads(HASHED.sub("~HASH", json.dumps(value).replace(json.dumps(name)[1:-1], "NODE")))


def noun(path: str) -> str:
    """What an answer is about: the second segment of its path, which begins the paths of its values."""
    return path.split("?", maxsplit=1)[0].split("/")[2] if path.count("/") > 1 else path


def text(answer: Answer) -> str:
    """The body, for a line of a report."""
    return answer.content.decode(errors="replace")[:300]


def condition(until: Callable[[Any], object] | None, status: int | None) -> Callable[[Answer], bool]:
    """What an answer must be, before it is taken: of this status, or JSON of which `until` is true."""
    if status is not None:
        return lambda answer: answer.status == status
    return lambda answer: until is None or (answer.status < 400 and holds(until, answer))


def waited(
    api: Api, enough: Callable[[Answer], bool], verb: str, path: str, body: object, headers: Mapping[str, str] | None
) -> Answer:
    """An answer that is enough, asked for again and again. Raises AssertionError if none ever is."""
    last: list[Answer] = []

    def ask() -> Answer | None:
        last[:] = [api.call(verb, path, body, headers)]
        return last[0] if enough(last[0]) else None

    return waiting.until(ask, lambda: f"{api.url}: {verb} {path}: {text(last[0])}")


def holds(until: Callable[[Any], object], answer: Answer) -> bool:
    """True if the condition is true of the answer; a key that is not there yet makes it false."""
    try:
        return bool(until(answer.json))
    except (LookupError, TypeError):
        return False
