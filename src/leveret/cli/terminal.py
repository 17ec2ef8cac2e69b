"""Lines on a terminal: counts, names that come from others, errors."""

from __future__ import annotations

import sys
from typing import NoReturn

import click


def counted(count: float, noun: str) -> str:
    """Return "1 message", "2,000 messages"."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def plain(text: str) -> str:
    """Escape control characters, which could manipulate a terminal."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def fail(status: int, text: str) -> NoReturn:
    """Tell an error on standard error, and end the process."""
    click.echo(text, err=True)
    sys.exit(status)
