"""Export and import of definitions files."""

from __future__ import annotations

import json
import sys
from typing import Any

from leveret.cli.ctl.exits import DATA, UNAVAILABLE, USAGE, Failed
from leveret.cli.ctl.spec import Given

STANDARD = "-"


def definitions_to(answer: Any, given: Given) -> str:
    """Write the exported definitions to the file; return them as text if that is standard output."""
    warn(answer)
    text = json.dumps({name: value for name, value in answer.items() if name != "warnings"}, ensure_ascii=False)
    if given["file"] == STANDARD:
        return text
    try:
        with open(given["file"], "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Failed(f"cannot write {given['file']}: {error.strerror or error}", UNAVAILABLE) from None
    return ""


def imported(answer: Any, given: Given) -> str:
    """Print warnings and return the success message."""
    warn(answer)
    return "Definitions were imported."


def warn(answer: Any) -> None:
    """Print the broker's warnings to standard error."""
    for line in (answer or {}).get("warnings", ()):
        print(line, file=sys.stderr)


def definitions_from(given: Given) -> dict[str, object]:
    """Read definitions from a file or standard input, as a field of the command."""
    name = given["file"]
    if not name and sys.stdin.isatty():
        raise Failed("no file given: name a file, or - for standard input", USAGE)
    try:
        text = _read(name) if name and name != STANDARD else sys.stdin.read()
    except FileNotFoundError:
        raise Failed(f"File {name} does not exist", DATA) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"cannot read {name}: {error}", DATA) from None
    try:
        definitions = json.loads(text)
    except ValueError as error:
        raise Failed(f"{name or STANDARD} is not JSON: {error}", DATA) from None
    return {"definitions": definitions}


def _read(name: str) -> str:
    with open(name, encoding="utf-8") as file:
        return file.read()
