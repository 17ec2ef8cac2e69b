"""Texts from operators, files and other systems: definitions, bodies of the HTTP API, policies, URIs, patterns.

Each is accepted or refused with the error meant for it. Patterns match as Python's `re` does, if that is not too slow.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from typing import Final

import msgspec

from leveret.admin import body
from leveret.admin.answers import HttpError
from leveret.admin.router import segments
from leveret.broker.access.automaton import Automaton, TooHard
from leveret.broker.access.pattern import Pattern, refused_pattern
from leveret.broker.streams.age import age_us
from leveret.broker.streams.offsets import offset_spec, refused_offset
from leveret.cli.ctl.terms import cell, json_text
from leveret.control.definitions.document import Document
from leveret.control.definitions.importing import Import
from leveret.control.refusal import Refused
from leveret.control.validation import federation_rules, policy_rules
from leveret.federation.upstream import without_credentials
from leveret.net.quantity import octets as quantity
from leveret.store.tables import directory_name
from leveret.wire.table import encode_value

from ..unit.support import Bench
from .octets import Octets

ATOMS: Final = (
    "a", "b", ".", "[ab]", "[^a]", "\\w", "\\d", "\\S", "^", "$", "(a|b)", "(?:ab|a)*", "a*", "a+", "b?", "a{2,3}",
    "(a*)*",
    "(a|ab)+", "\\.", "-", "\\b", "\\B", "a+?", "\\Z", "\\A", "|", "(", ")", "[[:alpha:]]", "\\Q.\\E", "(?i)",
    "{", "(?=a)",
)  # fmt: skip
CONTROLS: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def one_input(data: bytes) -> None:
    octets = Octets(data)
    octets.choice(PARTS)(octets)


def _text(octets: Octets) -> str:
    return octets.rest().decode("utf-8", "replace")


def definitions(octets: Octets) -> None:
    """A file of definitions, or a request body with definitions."""
    try:
        document = msgspec.json.decode(octets.rest(), type=Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    bench = Bench()
    try:
        Import(bench.broker, document).apply(bench.now_us)
    except Refused:
        return
    bench.sync()


def http_body(octets: Octets) -> None:
    what = body.Body("name", name=body.text, durable=body.boolean, arguments=body.table, tags=body.tags, n=body.integer)
    try:
        found = what.take(body.decode(octets.rest()))
    except HttpError:
        return
    assert isinstance(found["name"], str)


def http_path(octets: Octets) -> None:
    path = segments(octets.rest())
    assert path is None or all(isinstance(part, str) for part in path)


def policy(octets: Octets) -> None:
    is_operator = octets.flag()
    try:
        value = json.loads(octets.rest())
    except (ValueError, RecursionError):
        return
    assert isinstance(policy_rules.definition(value, is_operator), str)


def upstream(octets: Octets) -> None:
    uri = _text(octets)
    complaints = federation_rules.upstream("up", {"uri": uri})
    if not complaints and "@" in uri:
        assert without_credentials(uri).count("@") <= uri.count("@")


def pattern(octets: Octets) -> None:
    """leveret's matcher and Python's `re` agree."""
    text = "".join(octets.choice(ATOMS) for _ in range(octets.octet() % 8))
    # Python finds no \\B in the empty text, PCRE does
    name = octets.rest()[:12].decode("latin-1") or "a"
    found = Pattern(text).matches(name)
    if refused_pattern(text):
        assert not found or text == ".*"
        return
    raw = text.encode()
    if b"[[" in raw or b"\\Q" in raw:
        return  # Python reads these differently
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = re.compile(raw or b"^$").search(name.encode()) is not None
        assert found == known, (text, name)
        try:
            assert Automaton(raw or b"^$").search(name.encode()) == known, (text, name)
        except TooHard:
            pass


def any_pattern(octets: Octets) -> None:
    """Any pattern is matched quickly."""
    text = _text(octets)
    Pattern(text).matches("a" * 255)


def words(octets: Octets) -> None:
    """Ages, offsets, amounts of memory, names of directories, cells of tables."""
    text = _text(octets)
    assert age_us(text) >= -1
    given = encode_value(text[:100])
    if not refused_offset(given):
        offset_spec(given, 1 << 50)
    try:
        assert quantity(text, 1 << 30) >= 0
    except ValueError:
        pass
    name = directory_name(text)
    assert "/" not in name
    assert name not in {".", ".."}
    assert len(name) < 256
    assert not CONTROLS.search(cell(text))
    assert not CONTROLS.search(json_text({"name": text}))
    assert json.loads(json_text({"name": text})) == {"name": text}


PARTS: Final[tuple[Callable[[Octets], None], ...]] = (
    definitions, http_body, http_path, policy, upstream, pattern, any_pattern, words,
)  # fmt: skip
