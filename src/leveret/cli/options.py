"""Code shared by commands: combined options, and groups with spelling hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Function = Callable[..., Any]


def options(*given: Function) -> Callable[[Function], Function]:
    """Combine several click options into one decorator, listed in this order."""

    def add(function: Function) -> Function:
        for option in reversed(given):
            function = option(function)
        return function

    return add


class CommandGroup(click.Group):
    """A group that suggests the probable command for a mistyped one; commands need not be imported yet."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args[0][:1] != "-" and self.get_command(ctx, args[0]) is None:
            import difflib  # needed for mistyped names only

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"'{ctx.command_path} --help' lists all commands."
            raise click.UsageError(f"Unknown command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)
