"""The reference of all error texts, collected where the source raises them.

The texts are those of the source, with values that are inserted at run time in braces. A function that makes an error
from its parameters (`fail(method, code, text)`) is followed to its callers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commands_page import cell

import leveret
from leveret.wire import errors
from leveret.wire.errors import NAMES, SOFT

SRC = Path(leveret.__file__).parent
CODES = {name: value for name, value in vars(errors).items() if isinstance(value, int)}

INTRO = """# Errors

What leveret answers when something is wrong, as the source has it; what is put in at the time stands in `{braces}`.

## AMQP

The code's name, a dash and this text are the `reply_text` of `channel.close` or `connection.close`. Where
RabbitMQ has a text, it is RabbitMQ's.
"""

REFUSALS = """
## Commands and HTTP

What `leveret ctl` prints, and what the HTTP API gives as `reason`. `bad_request` is HTTP 400, `not_found` 404.

| kind | text | from |
|---|---|---|"""


@dataclass(frozen=True)
class Maker:
    """A function that makes an error."""

    text_at: int  # position of the text in a call
    code_at: int | None = None  # position of the code, if it is an argument
    code: str = ""  # the fixed code otherwise


Makers = dict[str, Maker]


def text() -> str:
    lines = [INTRO]
    found = protocol_errors()
    for code in sorted({each[0] for each in found}):
        closes = "closes the channel" if code in SOFT else "closes the connection"
        lines += [f"### {code} {NAMES[code]}\n", f"It {closes}.\n", "| text | from |", "|---|---|"]
        lines += _rows([(words, place) for number, words, place in found if number == code])
        lines.append("")
    lines.append(REFUSALS)
    lines += _rows([(f"{kind} | {words}", place) for kind, words, place in refusals()])
    return "\n".join(lines)


def _rows(found: list[tuple[str, str]]) -> list[str]:
    """Return one row for each text, with all files that contain it."""
    places: dict[str, set[str]] = {}
    for words, place in found:
        places.setdefault(words, set()).add(f"`{place}`")
    return [f"| {_escaped(words)} | {', '.join(sorted(places[words]))} |" for words in sorted(places)]


def _escaped(words: str) -> str:
    return " | ".join(cell(part) for part in words.split(" | "))


def protocol_errors() -> list[tuple[int, str, str]]:
    """Return code, text and file of each protocol error."""
    found = []
    for code, words, place in _made(("wire", "session", "broker"), {"ProtocolError": Maker(1, 0)}, "ProtocolError"):
        number = int(code) if code.isdigit() else CODES.get(code)
        if number in NAMES and words:
            found.append((number, words, place))
    return found


def refusals() -> list[tuple[str, str, str]]:
    """Return kind, text and file of each refusal of an operator's command."""
    makers = {"bad_request": Maker(0, code="bad_request"), "not_found": Maker(0, code="not_found")}
    return [each for each in _made(("control", "broker"), makers, "Refused") if each[0] in makers]


def _made(rooms: tuple[str, ...], makers: Makers, returned: str) -> Iterator[tuple[str, str, str]]:
    trees = {path: ast.parse(path.read_text()) for room in rooms for path in sorted((SRC / room).rglob("*.py"))}
    found = []
    for _ in range(3):  # a maker may call a maker
        found = []
        for path, tree in trees.items():
            local = makers | {}
            for function in _functions(tree):
                names = [each.arg for each in function.args.args]
                for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                    maker = local.get(_name(call.func))
                    if maker is None or len(call.args) <= maker.text_at:
                        continue
                    code = maker.code if maker.code_at is None else _name(call.args[maker.code_at])
                    given = call.args[maker.text_at]
                    is_passed_on = (
                        isinstance(given, ast.Name) and given.id in names and not _assigned(function, given.id)
                    )
                    if is_passed_on and isinstance(given, ast.Name) and _returns(function, returned):
                        at = names.index(given.id)
                        makers[function.name] = Maker(at, names.index(code) if code in names else None, code)
                    else:
                        found += [(code, words, str(path.relative_to(SRC))) for words in _texts(given, function)]
    yield from found


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _returns(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    return function.returns is not None and _name(function.returns) == name


def _name(node: ast.AST) -> str:
    """Return the last part of a name, or a number as it is written."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _assigned(function: ast.AST, name: str) -> list[ast.expr]:
    return [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
    ]


def _texts(node: ast.expr, function: ast.AST) -> list[str]:
    """Return the texts that an expression may have; nothing if the text comes from elsewhere."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return ["".join(_part(part) for part in node.values)]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, function) + _texts(node.orelse, function)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in _texts(node.left, function) for right in _texts(node.right, function)]
    if isinstance(node, ast.Name):
        return [words for value in _assigned(function, node.id) for words in _texts(value, function)]
    return []


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        inside = ast.unparse(part.value)
        return "{" + (inside.split(".")[-1] if inside.replace(".", "").replace("_", "").isalnum() else "…") + "}"
    return str(part.value) if isinstance(part, ast.Constant) else ""
