"""Patterns on which Python's matcher could take too long are matched by an automaton, with the same result."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.access.automaton import PLACES_MAX, Automaton, TooHard, _choices, is_quick
from leveret.broker.access.pattern import Pattern, refused_pattern
from leveret.broker.access.pattern_syntax import Syntax

ATOMS = st.sampled_from([
    "a", "b", ".", "[ab]", "[^a]", "\\w", "\\D", "\\s", "^", "$", "(a|b)", "(?:ab|a)*", "a*", "a+", "b?", "a{2,3}",
    "(a*)*",
    "(a|ab)+", "\\.", "\\b", "\\B", "a+?", "\\Z", "\\A", "(?:a|)", "[a-c]{0,2}",
])  # fmt: skip

# Python does not find \\B in the empty text, PCRE does
NAMES = st.text("aAb.-1\n", min_size=1, max_size=8)


@settings(max_examples=400)
@given(parts=st.lists(ATOMS, max_size=6), flag=st.sampled_from(["", "(?i)", "(?s)"]), name=NAMES)
def test_it_agrees_with_pythons_matcher(parts: list[str], flag: str, name: str) -> None:
    pattern = (flag + "".join(parts)).encode()
    assert Automaton(pattern).search(name.encode()) == (re.search(pattern, name.encode()) is not None)


SYNTAX = st.recursive(
    st.sampled_from([
        "a", "b", "\\x41", "\\101", "\\t", "\\.", "\\-", "[ab]", "[^a]", "[]a]", "[^]a]", "[a-c]", "[a-]", "[-a]",
        "[\\w-]", "[^\\d.]", "\\w", "\\W", "\\d", "\\D", ".", "^", "\\A", "\\b", "\\B", "{", "{}", "{a}", "{1,", "]",
        "-", "#", " ", "\n",
    ]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{0,2}", "{1,2}?"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=400)
@given(syntax=SYNTAX, flag=st.sampled_from(["", "(?i)", "(?s)", "(?is)"]), name=NAMES)
def test_it_agrees_with_re2(syntax: str, flag: str, name: str) -> None:
    """RE2, an automaton too, has its own parser. The two read alike what is in SYNTAX."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    expected = re2.compile((flag + syntax).encode(), options).search(name.encode()) is not None
    assert Automaton((flag + syntax).encode()).search(name.encode()) == expected


@pytest.mark.parametrize(("text", "choices"), [
    ("(?x) a b  # a comment (\n c", 0), ("(?x: a * ) b *", 2), ("(?#a|bc)a", 0), ("(ab|ac)", 0), ("(a|bc)", 1),
    ("(a|[bc]|\\d)", 0), ("(a|[^b])", 1), ("a{2}b{2,}c{,3}d{,}", 3), ("a{2,2}", 0), ("(?=a|bc)(?<!a)b++", 2),
    ("(a)(?(1)b|c)", 1), ("(?P<x>a)(?P=x)\\1", 0), ("(?>a|bc)", 1), ("(?i:a|bc)(?-i:a)", 1), ("\\[*", 1), ("[*|+]", 0),
])  # fmt: skip
def test_choices(text: str, choices: int) -> None:
    re.compile(text.encode())
    assert _choices(Syntax(text.encode()).parts) == choices


@pytest.mark.parametrize("text", [
    "(a+)+$", "(a|aa)+$", "(.*a){12}$", "a*a*a*a*a*a*a*b", "(x+x+)+y", "^(team-[a-z]+\\.)+queue$", ".*.*.*=",
    "(a?){30}b",
    "(a|a)(a|a)(a|a)b",
])  # fmt: skip
def test_a_pattern_with_many_ways_is_matched_soon(text: str) -> None:
    """Python's matcher would take longer than the whole test suite; the test's time limit ends an endless match."""
    assert not is_quick(text.encode())
    assert refused_pattern(text) == ""
    assert not Pattern(text).matches("a" * 255 + "!")


@pytest.mark.parametrize("text", ["", "^amq\\.gen.*", "^(q|r)[a-z]*$", "^a.*b.*$", "(?=a)a", "x{300}"])
def test_usual_patterns_are_pythons_matter(text: str) -> None:
    assert is_quick(text.encode())
    assert refused_pattern(text) == ""


@pytest.mark.parametrize(("text", "why"), [
    ("(?=(a+)+b)a", "it contains a lookahead, a lookbehind or a backreference"),
    ("(a)\\1+(a*)*b", "it contains a lookahead, a lookbehind or a backreference"),
    ("(?i:(a+)+)$", "it has flags within a group"),
    ("(?m)^(a+)+$", "it matches the ends of lines"),
    ("(a?b?){1200}", "it is too long"),
    ("a" * 5000, "it is too long"),
])  # fmt: skip
def test_what_could_take_long_is_refused_where_it_is_set(text: str, why: str) -> None:
    assert refused_pattern(text) == f"it may take too long to match, and {why}"
    assert not Pattern(text).matches("a" * 30)


def test_places_are_bounded() -> None:
    with pytest.raises(TooHard):
        Automaton(b"a" * (PLACES_MAX + 1))


@pytest.mark.parametrize(("text", "name", "is_found"), [
    ("(a+)+$", "xaa", True), ("^(q-[a-z]+\\.)+end$", "q-a.q-b.end", True), ("^(q-[a-z]+\\.)+end$", "q-a.q-b.en", False),
    ("^((a|b)*c)*$", "abcabc", True), ("^((a|b)*c)*$", "abca", False),
])  # fmt: skip
def test_names_are_found(text: str, name: str, is_found: bool) -> None:
    assert Pattern(text).matches(name) == is_found
