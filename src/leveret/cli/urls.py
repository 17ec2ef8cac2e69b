"""The option --url of commands that connect to a broker over AMQP."""

from __future__ import annotations

from typing import Final

import click

from leveret.client.url import parse_url

URL_DEFAULT: Final = "amqp://guest:guest@localhost:5672/"


def url_of(text: str) -> str:
    """Check a connection URL. Raises click.BadParameter."""
    try:
        parse_url(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


CHECKED_URL: Final = click.option(
    "--url", type=url_of, metavar="URL", envvar="LEVERET_URL", default=URL_DEFAULT, show_default=True,
    help="URL of the broker (environment: LEVERET_URL).",
)  # fmt: skip
URL: Final = click.option(
    "--url", envvar="LEVERET_URL", default=URL_DEFAULT, show_default=True, help="URL of the broker."
)
"""For commands that report a wrong URL when they connect."""
