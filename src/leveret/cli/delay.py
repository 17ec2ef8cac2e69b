"""leveret delay create | verify | migrate | transfer: the delay levels of a broker, leveret or RabbitMQ, over AMQP.

Exit codes: 0 done; 1 something is missing, different, or was not moved; 2 wrong options, or no connection.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Coroutine
from typing import Any, Final

import click

from leveret.cli.options import CommandGroup, options
from leveret.cli.plain_words import plain_words
from leveret.cli.terminal import fail
from leveret.cli.urls import CHECKED_URL, url_of
from leveret.client import ChannelClosed, ClientError, Connection, connect
from leveret.client.protocol.url import Address, parse_url
from leveret.delay import LAYOUTS, Layout
from leveret.delay.tools import LayoutConflict, Mover, create, verify
from leveret.delay.tools.destinations import DestinationBinding
from leveret.delay.tools.management import ApiError, Management

EXIT_FAILED: Final = 1
EXIT_UNUSABLE: Final = 2
POISON_MIGRATE: Final = "delays-migrate-poison-messages"
POISON_TRANSFER: Final = "delays-transfer-poison-messages"
FIELDS: Final = {"prefix": str, "levels": int, "unit-ms": int, "queue-type": str}


def _layout_of(text: str) -> Layout:
    """Parse a layout's name with changes: ``nservicebus,prefix=other,levels=20``. Raises click.BadParameter."""
    name, *changes = text.split(",")
    if name not in LAYOUTS:
        raise click.BadParameter(f"unknown layout {name!r}; known layouts: {', '.join(LAYOUTS)}")
    chosen: dict[str, Any] = {}
    for change in changes:
        key, _, value = change.partition("=")
        if key not in FIELDS:
            raise click.BadParameter(f"unknown field {key!r}; known fields: {', '.join(FIELDS)}")
        try:
            chosen[key.replace("-", "_")] = FIELDS[key](value)
        except ValueError:
            raise click.BadParameter(f"{key} must be a number, not {value!r}") from None
    return _changed(LAYOUTS[name], chosen)


def _changed(layout: Layout, chosen: dict[str, Any]) -> Layout:
    """Return the layout with the given changes. Raises click.BadParameter if that is no valid layout."""
    try:
        return dataclasses.replace(layout, **chosen)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


LAYOUT: Final = options(
    click.option("--layout", type=_layout_of, metavar="LAYOUT", default="nservicebus", show_default=True,
                 help=f"{', '.join(LAYOUTS)}; modify it with options, or append changes: NAME,prefix=X,levels=N."),
    click.option("--prefix", help="Prefix of the names of exchanges and queues."),
    click.option("--levels", type=int, help="Number of levels; the longest delay is 2^levels - 1 units."),
    click.option("--unit-ms", type=int, help="Delay of the lowest level, in milliseconds."),
    click.option("--queue-type", type=click.Choice(["classic", "quorum"]), help="Type of the level queues."),
)  # fmt: skip
MOVING: Final = options(
    click.option("--bind", "binding", type=click.Choice([one.value for one in DestinationBinding]), default=None,
                 help="What to bind for each destination: its exchange, its queue, or nothing.  [default: auto; "
                      "for Celery's layouts: none]"),
    click.option("--undated", type=click.Choice(["poison", "restart"]), default="poison", show_default=True,
                 help="Messages without a due time: move them to a poison queue, or restart their level's delay."),
    click.option("--dry-run", is_flag=True, help="Show what would be done; move and declare nothing."),
)  # fmt: skip


@click.group(cls=CommandGroup)
def command() -> None:
    """Delay levels on leveret or RabbitMQ: create, verify, migrate, transfer.

    Exit codes: 0 done, 1 something is missing, different or was not moved, 2 wrong options or no connection.
    """


@command.command("create")
@CHECKED_URL
@LAYOUT
def create_command(url: str, layout: Layout, **chosen: Any) -> None:
    """Declare the exchanges, queues and bindings of a layout. Those that exist already are kept."""
    layout = _changed(layout, {key: value for key, value in chosen.items() if value is not None})

    async def work() -> int:
        async with await connect(url, name="leveret delay create", reconnect=False) as connection:
            count = await create(connection, layout)
        click.echo(f"{count} exchanges, queues and bindings exist: {layout.level_name(layout.levels - 1)} to "
                   f"{layout.level_name(0)}, then {layout.delivery_exchange}")  # fmt: skip
        return 0

    _run(work())


@command.command("verify")
@CHECKED_URL
@LAYOUT
@click.option("--api", help="URL of the HTTP API, such as http://localhost:15672, for details that AMQP does not "
                            "report.")
def verify_command(url: str, layout: Layout, api: str | None, **chosen: Any) -> None:
    """Report which parts of a layout exist, are missing or differ. Nothing is changed."""
    layout = _changed(layout, {key: value for key, value in chosen.items() if value is not None})
    try:
        management = Management(api, parse_url(url)) if api is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--api") from None

    async def work() -> int:
        from leveret.cli.delay_output import show_findings

        async with await connect(url, name="leveret delay verify", reconnect=False) as connection:
            findings = await verify(connection, layout, management)
        show_findings(findings)
        return EXIT_FAILED if any(finding.state.is_failure for finding in findings) else 0

    _run(work())


@command.command("migrate")
@CHECKED_URL
@click.option("--from", "source", type=_layout_of, metavar="LAYOUT", default="nservicebus", show_default=True)
@click.option("--to", "target", type=_layout_of, metavar="LAYOUT", default="nservicebus-v2", show_default=True)
@MOVING
def migrate_command(
    url: str, source: Layout, target: Layout, dry_run: bool, undated: str, binding: str | None
) -> None:
    """Move the messages of one layout to another on the same broker, keeping their remaining delays.

    Stop the senders of the old layout first, or run this again: only messages present at the start are moved.
    """
    if {source.level_name(level) for level in range(source.levels)} & {
        target.level_name(level) for level in range(target.levels)
    }:
        raise click.UsageError("--from and --to have queues in common: there is nothing to move")

    async def work() -> int:
        async with await connect(url, name="leveret delay migrate", reconnect=False) as connection:
            return await _move(connection, source, connection, target, POISON_MIGRATE, dry_run, undated, binding)

    _run(work())


@command.command("transfer")
@CHECKED_URL
@click.option("--to", "to_url", type=url_of, metavar="URL", required=True, help="The broker to move to.")
@LAYOUT
@click.option("--to-layout", type=_layout_of, metavar="LAYOUT", help="Layout on the target broker, if it differs.")
@MOVING
def transfer_command(
    url: str,
    to_url: str,
    layout: Layout,
    to_layout: Layout | None,
    dry_run: bool,
    undated: str,
    binding: str | None,
    **chosen: Any,
) -> None:
    """Move the messages of a layout to another broker, keeping their remaining delays."""
    layout = _changed(layout, {key: value for key, value in chosen.items() if value is not None})
    if _place(parse_url(url)) == _place(parse_url(to_url)):
        raise click.UsageError("--url and --to are the same broker: use `leveret delay migrate`")

    async def work() -> int:
        async with (
            await connect(url, name="leveret delay transfer", reconnect=False) as source,
            await connect(to_url, name="leveret delay transfer", reconnect=False) as target,
        ):
            return await _move(
                source, layout, target, to_layout or layout, POISON_TRANSFER, dry_run, undated, binding
            )  # fmt: skip

    _run(work())


def _place(address: Address) -> tuple[str, int, str]:
    host = "localhost" if address.host in ("127.0.0.1", "::1") else address.host
    return host, address.port, address.vhost


async def _move(
    source: Connection,
    layout: Layout,
    target: Connection,
    target_layout: Layout,
    poison_queue: str,
    dry_run: bool,
    undated: str,
    binding: str | None,
) -> int:
    from leveret.cli.delay_output import LevelBars, show_summary

    # a Celery worker declares its own bindings, whose keys are neither queue nor exchange names
    bind = (
        DestinationBinding(binding)
        if binding is not None
        else DestinationBinding.NONE
        if target_layout.starts_at_top
        else DestinationBinding.AUTO
    )
    with LevelBars(layout) as bars:
        mover = Mover(
            source, layout, target, target_layout, poison_queue,
            binding=bind, restarts=undated == "restart", on_progress=bars.show,
        )  # fmt: skip
        summary = await (mover.dry_run() if dry_run else mover.run())
    show_summary(summary, dry_run, poison_queue)
    return EXIT_FAILED if summary.left else 0


def _run(work: Coroutine[Any, Any, int]) -> None:
    """Run the coroutine and exit with its code; network and broker errors are explained on standard error."""
    try:
        code = asyncio.run(work)
    except LayoutConflict as error:
        code, text = EXIT_FAILED, str(error)
    except (LookupError, ApiError) as error:
        code, text = EXIT_FAILED, str(error.args[0])
    except ChannelClosed as error:
        code, text = EXIT_FAILED, f"the broker refused the operation: {error}"
    except ClientError as error:
        code, text = EXIT_UNUSABLE, (
            f"{error}\nNo message was lost: unconfirmed messages are still in their queues. "
            "Run the command again."
        )
    except OSError as error:
        code, text = EXIT_UNUSABLE, str(error)
    else:
        sys.exit(code)
    fail(code, plain_words(text))

