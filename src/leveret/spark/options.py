"""The options of ``format("leveret")``, read from Spark's strings and checked before anything connects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leveret.client.protocol.url import parse_url

URL_DEFAULT: Final = "amqp://guest:guest@localhost:5672/"


def url_of(options: Mapping[str, str]) -> str:
    """Return option ``url``; ``ValueError`` names the option if it is malformed."""
    url = options.get("url", URL_DEFAULT)
    try:
        parse_url(url)
    except ValueError as error:
        raise ValueError(f"option url: {error}") from None
    return url


def number(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Return an option as a whole number; ``ValueError`` names the option and its range."""
    text = options.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"option {name} must be a whole number, not {text!r}") from None
    if not least <= value <= most:
        raise ValueError(f"option {name} must be {least} to {most}, not {value}")
    return value


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return an option that is true or false; ``ValueError`` names the option."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"option {name} must be true or false, not {text!r}")
    return text.lower() == "true"
