"""Patterns of names, compared with the regular expressions of the Erlang that RabbitMQ runs on."""

from __future__ import annotations

import base64
import random
import re
import subprocess

import pytest

from leveret.broker.access.pattern import Pattern, refused_pattern

# patterns that operators might write, and some unusual ones
WRITTEN = [
    "", ".*", "^a", "a$", "^(a|ab)$", "^amq\\.", "^amq.gen.*|amq.default$", "^[[:alpha:]]+$", "^[[:digit:]a]*$",
    "[[:punct:]]", "^[^[:space:]]+$", "^\\Qa.b\\E$", "\\Q(", "a\\z", "a\\Z", "^(?<n>a)b", "(?<!a)b", "(?<=a)b",
    "(?i)AB", "^.$", "^..$", "\\d", "\\W", "^a{2}$", "a++b", "(?>a|ab)c", "^((?!amq).)*$", "{client_id}", "^$", "[]a]",
    "[[a]", "\\.", "\\/", "a|", "(a)\\1", "^\\s", "\\bA\\b",
]  # fmt: skip
NAMES = [
    "", "a", "b", "ab", "aab", "abc", "aa", "A", "AB", "a.b", "amq.default", "amq.gen-x", "amqXgen", "é", "aé", "1a",
    "a-b", " a", "a b", "a\n", "(", "[", "]", "{client_id}", "a/b", "abab", "x" * 255,
]  # fmt: skip
PIECES = ["a", "b", ".", "^", "$", "*", "+", "?", "|", "(", ")", "[", "]", "-", "{2}", "\\.", "[^a]", "(?:", "\\d", "é"]
# only Erlang knows which octets beyond ASCII are letters (see broker/access/pattern.py)
CLASSES = re.compile(r"\[:|\\[wWbBsS]")
ERLANG = """
{ok, Text} = file:read_file(hd(init:get_plain_arguments())),
[Patterns, Names] = [[base64:decode(W) || W <- string:lexemes(L, " ")] || L <- string:lexemes(Text, "\\n")],
Undash = fun(<<"-">>) -> <<>>; (<<"=", Rest/binary>>) -> Rest end,
[begin
    case re:compile(Undash(P)) of
        {error, _} -> io:format("e");
        {ok, _} ->
            RE = case Undash(P) of <<>> -> <<"^$">>; Other -> Other end,
            [io:format("~b", [case re:run(Undash(N), RE, [{capture, none}]) of match -> 1; _ -> 0 end]) || N <- Names]
    end,
    io:format("~n")
 end || P <- Patterns],
halt().
"""


def made(count: int) -> list[str]:
    """Return `count` random patterns, the same in every run."""
    dice = random.Random(7)
    return ["".join(dice.choices(PIECES, k=dice.randint(1, 6))) for _ in range(count)]


@pytest.fixture(scope="module")
def patterns() -> list[str]:
    return WRITTEN + made(2000)


@pytest.fixture(scope="module")
def erlang(patterns: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return for each pattern "e" if it is invalid, or a 0 or 1 for each name."""
    path = tmp_path_factory.mktemp("erlang") / "words"
    path.write_bytes(b"\n".join(b" ".join(_word(each) for each in words) for words in (patterns, NAMES)))
    command = ["erl", "-noshell", "-eval", ERLANG, "-extra", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.split("\n")[:-1]


def _word(text: str) -> bytes:
    return base64.b64encode(b"=" + text.encode()) if text else base64.b64encode(b"-")


def test_patterns_match_as_those_of_erlang(patterns: list[str], erlang: list[str]) -> None:
    assert len(erlang) == len(patterns)
    matched = 0
    for pattern, expected in zip(patterns, erlang, strict=True):
        if expected == "e" or refused_pattern(pattern):
            continue
        for name, is_match in zip(NAMES, expected, strict=True):
            if name.isascii() or not CLASSES.search(pattern):
                assert Pattern(pattern).matches(name) is (is_match == "1"), (pattern, name)
        matched += 1
    assert matched > 500


def test_what_operators_write_is_understood(patterns: list[str], erlang: list[str]) -> None:
    for pattern, expected in zip(WRITTEN, erlang, strict=False):
        assert expected != "e", pattern
        assert not refused_pattern(pattern), pattern
