"""What the commands have in common: where the broker is, values of options, errors and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import click

from leveret.cli.terminal import fail
from leveret.cli.urls import URL_DEFAULT, urls_of
from leveret.client import (
    BlockingConnection,
    ChannelClosed,
    ClientError,
    ConsumerCancelled,
    Nacked,
    RpcTimeout,
    Unroutable,
)
from leveret.client.blocking_channel import BlockingChannel
from leveret.wire.errors import NOT_FOUND
from leveret.wire.table import Value

EXIT_NOT_DONE: Final = 1
EXIT_BROKER: Final = 3
EXIT_INTERRUPTED: Final = 130
EXIT_CODES: Final = "0 done, 1 not done (it says why), 2 wrong options, 3 no connection or refused, 130 interrupted"
Result = TypeVar("Result")


WHERE: Final = click.option(
    "--url", type=urls_of, metavar="URL", envvar="LEVERET_URL", default=URL_DEFAULT, show_default=True,
    help="URL of the broker, or of several that are tried in turn (environment: LEVERET_URL).",
)  # fmt: skip
AS_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def pair(text: str) -> tuple[str, Value]:
    """Parse NAME=TEXT, or NAME:=JSON for numbers, booleans, lists and tables. Raises click.BadParameter."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip(":"):
        raise click.BadParameter(f"{text!r} is neither NAME=TEXT nor NAME:=JSON")
    if not name.endswith(":"):
        return name, value
    try:
        found: Value = json.loads(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not JSON: write {name[:-1]}={value} for a text") from None
    return name[:-1], found


ARGUMENTS: Final = click.option(
    "--argument", "arguments", type=pair, multiple=True, metavar="NAME=VALUE",
    help="An argument: NAME=TEXT, or NAME:=JSON, such as x-max-length:=1000. May be repeated.",
)  # fmt: skip


def run(url: str, command: str, work: Callable[[BlockingConnection, BlockingChannel], Result]) -> Result:
    """Do the work on a channel of its own. Errors are told in one line, and end the process with an exit code."""
    try:
        with (
            BlockingConnection(url, name=f"leveret {command}", reconnect=False) as connection,
            connection.channel() as channel,
        ):
            return work(connection, channel)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except ChannelClosed as error:
        fail(EXIT_NOT_DONE if error.code == NOT_FOUND else EXIT_BROKER, str(error))
    except Nacked:
        fail(EXIT_NOT_DONE, "the broker refused the message (basic.nack): its queue is full, or could not store it")
    except (Unroutable, RpcTimeout, ConsumerCancelled) as error:
        fail(EXIT_NOT_DONE, str(error))
    except ClientError as error:
        fail(EXIT_BROKER, str(error))


def told(text: str, as_json: bool, values: Mapping[str, object]) -> None:
    """Print the result: the text, or these values."""
    click.echo(json.dumps(values) if as_json else text)
