"""The option --url of commands that connect to a broker over AMQP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from leveret.client.protocol.url import parse_url, parse_urls

URL_DEFAULT: Final = "amqp://guest:guest@localhost:5672/"


def _checked(text: str, parse: Callable[[str], object]) -> str:
    try:
        parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


def url_of(text: str) -> str:
    """Return a connection URL, checked. Raises click.BadParameter."""
    return _checked(text, parse_url)


def urls_of(text: str) -> str:
    """Return the connection URL of one broker or of several, checked. Raises click.BadParameter."""
    return _checked(text, parse_urls)


CHECKED_URL: Final = click.option(
    "--url", type=url_of, metavar="URL", envvar="LEVERET_URL", default=URL_DEFAULT, show_default=True,
    help="URL of the broker (environment: LEVERET_URL).",
)  # fmt: skip
URL: Final = click.option(
    "--url", envvar="LEVERET_URL", default=URL_DEFAULT, show_default=True, help="URL of the broker."
)
"""For commands that report a wrong URL when they connect."""
