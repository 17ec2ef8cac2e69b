"""RabbitMQ and the broker under test, sent the same requests at the same time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Self

from ... import waiting
from .api import Answer, Api
from .recording import HOW_TO_RECORD, OMIT, PLAIN, VARY, Said, Tape, settled
from .shape import Patterns, differences

__all__ = ["Answers", "Broker", "Pair"]

SETTLED_S = 12.0  # RabbitMQ's statistics are up to five seconds old, and an object's arrive at different times
# headers that must be the same, where RabbitMQ sends them
HEADERS = ("content-type", "location", "allow", "www-authenticate")
HASHED = re.compile(r"~[\w-]{6}\b")
ERLANG = re.compile(rb"EXIT|badarg|function_clause|&lt;&lt;|\{[a-z_]+,|\[\[\d+,|regular expression")


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Attributes:
        url: The AMQP URL, as guest on "/".
        api: The URL of the HTTP API, http://HOST:PORT.
    """

    url: str
    api: str


@dataclass(frozen=True)
class Answers:
    """Both brokers' answers to one request.

    Attributes:
        rabbitmq: RabbitMQ's answer; the selected part of it if it was recorded.
        subject: The answer of the broker under test.
        live: The answers given now, without RabbitMQ's if that was recorded.
    """

    rabbitmq: Answer
    subject: Answer
    live: tuple[Answer, ...]


@dataclass(frozen=True)
class Request:
    """One request; see `Pair.call`."""

    verb: str
    path: str
    subject_path: str | None
    body: object
    headers: Mapping[str, str] | None
    enough: Callable[[Answer], bool]
    exact: bool
    select: Callable[[Any], Any]

    @property
    def name(self) -> str:
        """The name in a recording: verb and path, or verb and noun if the path differs between brokers."""
        return f"{self.verb} {self.path if self.subject_path is None else noun(self.path)}"

    @property
    def asked_of_subject(self) -> str:
        return self.path if self.subject_path is None else self.subject_path

    @property
    def patterns(self) -> tuple[Patterns, Patterns]:
        """Which keys may be missing, and which values may vary."""
        return (PLAIN, PLAIN) if self.exact else (OMIT, VARY)


class Pair:
    """Two brokers' APIs, used by the same user. Without a RabbitMQ, its recorded answers are used.

    All differences between the answers are collected, as are RabbitMQ's differences from its recorded answers. `verify`
    raises with the whole list, so that a test shows everything that is wrong and not only the first difference.
    """

    def __init__(self, rabbitmq: Api | None, subject: Api, tape: Tape) -> None:
        self._rabbitmq = rabbitmq
        self.subject = subject
        self._tape = tape
        self._notes: list[str] = []
        self._stale: list[str] = []
        self._nodes = "" if rabbitmq is None else node(rabbitmq), node(subject)
        self.is_rabbitmq = identity(subject)[1] == "Cowboy"
        self._users: list[Pair] = []

    @property
    def apis(self) -> list[Api]:
        """The brokers that run: RabbitMQ, if there is one, and the broker under test."""
        return [api for api in (self._rabbitmq, self.subject) if api is not None]

    def as_user(self, user: str, password: str = "secret") -> Pair:
        """Return the same pair for another user; differences go to the same list."""
        pair = copy(self)
        pair._rabbitmq = self._rabbitmq and self._rabbitmq.as_user(user, password)
        pair.subject = self.subject.as_user(user, password)
        self._users.append(pair)
        return pair

    def call(
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
        patient: bool = False,
    ) -> Answers:
        """Send one request to both brokers.

        The broker under test is asked once, and first. RabbitMQ is asked repeatedly for a while, as long as the answers
        differ, because its statistics arrive late and at different times.

        Args:
            verb: GET, PUT, …
            path: Path from /api on, escaped.
            body: See `Api.call`.
            status: The status that both brokers must answer.
            headers: Additional headers.
            until: Must be true of the answer's JSON; RabbitMQ is asked again until it is.
            until_status: Must be the status; RabbitMQ is asked again until it is.
            exact: Whether no key may be missing and no value may differ.
            select: Selects the part of the answers' JSON to compare.
            subject_path: The path for the broker under test, if the names differ.
            patient: Whether to repeat the request to the broker under test, too: a link takes time to connect.
        """
        request = Request(verb, path, subject_path, body, headers, condition(until, until_status), exact, select)
        other = self._ours(request, patient or self.is_rabbitmq)
        said, one = self._theirs(request, other)
        assert status in (None, said.status), f"RabbitMQ: {verb} {path}: {said.status} {said.value}"
        return Answers(one, other, (other,) if self._rabbitmq is None else (one, other))

    def _ours(self, request: Request, patient: bool) -> Answer:
        if patient:
            return waited(self.subject, request, request.asked_of_subject)
        answer = ask(self.subject, request, request.asked_of_subject)
        if not request.enough(answer):
            self.note(request, f"not so when it was first asked: {answer.status} {text(answer)}")
        return answer

    def _theirs(self, request: Request, ours: Answer) -> tuple[Said, Answer]:
        """Return RabbitMQ's answer, a new or a recorded one, and collect the differences."""
        recorded = None if self._tape.is_recording else self._tape.next(request.name)
        if self._rabbitmq is None:
            assert recorded is not None, "there is no RabbitMQ to be recorded"
            self._notes += self._differences(request, recorded, recorded.value, ours)
            return recorded, recorded.answer()
        until_s = time.monotonic() + SETTLED_S
        while True:
            answer = waited(self._rabbitmq, request, request.path)
            value = told(request, answer, self._nodes[0])
            said = heard(request, answer, value)
            notes = self._differences(request, said, value, ours)
            stale = [] if recorded is None else recorded.changes(said, noun(request.path))
            if request.verb != "GET" or not (notes or stale) or time.monotonic() > until_s:
                break
        self._notes += notes
        self._stale += [f"{request.name}\n    {each}" for each in stale]
        if recorded is None:
            self._tape.add(request.name, said)
        return said, answer

    def _differences(self, request: Request, said: Said, expected: Any, ours: Answer) -> list[str]:
        """Return the differences from RabbitMQ's answer `said`, of which `expected` is the value."""
        return [f"{request.verb} {request.path}\n    {each}" for each in self._compare(request, said, expected, ours)]

    def _compare(self, request: Request, said: Said, expected: Any, ours: Answer) -> Iterator[str]:
        if said.status == 500:
            # RabbitMQ crashed: the status of the broker under test must say whose fault it was.
            if ours.status == 500 and self.is_rabbitmq:
                return  # the broker under test is a RabbitMQ, which tests these tests
            refused = 400 <= ours.status < 500 and set(ours.json or ()) == {"error", "reason"}
            if not refused and (request.verb != "GET" or ours.status >= 300):
                yield f"expected a client's error, got {ours.status} {text(ours)}"
            return
        if said.status != ours.status:
            yield f"expected {said.status} {str(expected)[:300]}, got {ours.status} {text(ours)}"
            return
        for name, wanted in said.headers.items():
            if wanted != HASHED.sub("~HASH", ours.headers.get(name, "")):
                yield f"header {name}: {wanted!r}, got {ours.headers.get(name)!r}"
        kind = said.headers.get("content-type", "")
        if kind != "application/json" and request.verb != "HEAD":
            if (expected or "") != text(ours, None) and not kind.startswith("text/html"):
                yield f"expected {expected}, got {text(ours)}"
            return
        try:
            got = neutral(ours.json, self._nodes[1])
        except ValueError:
            yield f"no JSON: {text(ours)}"
            return
        if said.status < 400:
            got = selected(request, got)
        yield from differences(expected, got, *request.patterns, noun(request.path))

    def alike(self, name: str, seen: list[Any]) -> None:
        """Check that values of each running broker (`apis`), found by other means than `call`, are the same."""
        recorded = None if self._tape.is_recording else self._tape.next(name)
        if self._rabbitmq is not None:
            said = Said(0, seen[0])
            stale = [] if recorded is None else recorded.changes(said, name)
            self._stale += [f"{name}\n    {each}" for each in stale]
            recorded = said
        if self._tape.is_recording and recorded is not None:
            self._tape.add(name, recorded)
        assert recorded is not None, "there is no RabbitMQ to be recorded"
        self._notes += [f"{name}\n    {each}" for each in differences(recorded.value, seen[-1], PLAIN, PLAIN)]

    def note(self, request: Request, what: str) -> None:
        """Add a difference."""
        self._notes.append(f"{request.verb} {request.path}\n    {what}")

    def get(self, path: str, status: int | None = 200, **more: Any) -> Answers:
        """GET; see `call`."""
        return self.call("GET", path, status=status, **more)

    def get_each(self, rabbitmq_path: str, subject_path: str, **more: Any) -> Answers:
        """GET two objects that are the same except for their names."""
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
        """Raise AssertionError with all differences so far, also those from the recording."""
        notes, stale = list(dict.fromkeys(self._notes)), list(dict.fromkeys(self._stale))
        self._notes.clear()
        self._stale.clear()
        assert not notes, f"{len(notes)} differences\n" + "\n".join(notes)
        assert not stale, f"RabbitMQ was recorded otherwise: {HOW_TO_RECORD} does that again.\n" + "\n".join(stale)
        self._tape.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pair in (self, *self._users):
            for api in pair.apis:
                api.close()


_identities: Final[dict[str, tuple[str, str]]] = {}


def identity(api: Api) -> tuple[str, str]:
    """Return the names of a broker's node and of its HTTP server. Each address is asked once."""
    if api.url not in _identities:
        answer = api.call("GET", "/api/overview")
        _identities[api.url] = str(answer.json["node"]), answer.headers.get("server", "")
    return _identities[api.url]


def node(api: Api) -> str:
    """Return the name of a broker's node."""
    return identity(api)[0]


def neutral(value: Any, name: str) -> Any:
    """Replace the node's name and hashes in keys of bindings, which differ between brokers."""
    return json.loads(HASHED.sub("~HASH", json.dumps(value).replace(json.dumps(name)[1:-1], "NODE")))


def noun(path: str) -> str:
    """Return what an answer is about: the second segment of its path, with which the paths of its values begin."""
    return path.split("?", maxsplit=1)[0].split("/")[2] if path.count("/") > 1 else path


def told(request: Request, answer: Answer, name: str) -> Any:
    """Return what to compare of RabbitMQ's answer: the selected part of its JSON, or the text if it is not JSON."""
    kind = answer.headers.get("content-type", "")
    if answer.status == 500:
        return None
    if kind != "application/json" and request.verb != "HEAD":
        return None if kind.startswith("text/html") else text(answer, None) or None
    value = neutral(answer.json, name)
    if answer.status < 400:
        return selected(request, value)
    if ERLANG.search(answer.content):
        # the kind of error must be the same; its text shows Erlang terms
        return {"error": value["error"]}
    if isinstance(value, dict) and VARY.names(f"{noun(request.path)}.reason"):
        value.pop("reason", None)
    return value


def selected(request: Request, value: Any) -> Any:
    """Return the selected part of a value as JSON, with tuples as arrays."""
    return json.loads(json.dumps(request.select(value)))


def heard(request: Request, answer: Answer, value: Any) -> Said:
    """Return RabbitMQ's answer as it is recorded; see `told` for the value."""
    if answer.status == 500:
        return Said(500)
    headers = {name: HASHED.sub("~HASH", answer.headers[name]) for name in HEADERS if answer.headers.get(name)}
    return Said(answer.status, settled(value, noun(request.path), *request.patterns), headers)


def text(answer: Answer, longest: int | None = 300) -> str:
    """Return the body as text for a report."""
    return answer.content.decode(errors="replace")[:longest]


def condition(until: Callable[[Any], object] | None, status: int | None) -> Callable[[Answer], bool]:
    """Return the check that an answer must pass: it has this status, or `until` is true of its JSON."""
    if status is not None:
        return lambda answer: answer.status == status
    return lambda answer: until is None or (answer.status < 400 and holds(until, answer))


def ask(api: Api, request: Request, path: str) -> Answer:
    """Send one request and return the answer."""
    return api.call(request.verb, path, request.body, request.headers)


def waited(api: Api, request: Request, path: str) -> Answer:
    """Repeat a request until its answer is `enough`. Raises AssertionError if none is."""
    last: list[Answer] = []

    def asked() -> Answer | None:
        last[:] = [ask(api, request, path)]
        return last[0] if request.enough(last[0]) else None

    return waiting.until(asked, lambda: f"{api.url}: {request.verb} {path}: {text(last[0])}")


def holds(until: Callable[[Any], object], answer: Answer) -> bool:
    """Return whether the condition is true of the answer; false if a key is still missing."""
    try:
        return bool(until(answer.json))
    except (LookupError, TypeError):
        return False
