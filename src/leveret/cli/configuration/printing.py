"""The settings in the forms that people read: an example file, the values in effect, a documentation page."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Final

from leveret.cli.configuration.chosen import DEFAULT, Chosen, said
from leveret.cli.configuration.settings import SECTIONS, Setting

WIDTH: Final = 100
HIDDEN: Final = "***"
HEAD: Final = """\
# Settings of `leveret serve --config FILE`. Commented lines show the default, or an example if there is none.
# An option (--port 5673) overrides an environment variable (LEVERET_PORT=5673), which overrides this file.
# "live": applied by `systemctl reload` (SIGHUP) while the broker runs; other settings at the next start.
"""
PAGE: Final = """\
# Configuration

<!-- Made by `python tools/settings_page.py` from src/leveret/cli/configuration/settings.py. -->

The value of a setting comes from an option of `leveret serve`, else from an environment variable, else from the TOML
file given by `--config`, else it is the default. `leveret serve --print-config` prints an example file of all settings
([deploy/leveret.toml](../../deploy/leveret.toml) is one); `leveret serve --check-config` with your options, variables
and file checks whether they are valid, and prints the values in effect and the source of each. Unknown keys are
rejected, with a suggestion.

**Live** settings change in the running broker on `systemctl reload leveret` (SIGHUP), see
[Production](../guides/production.md#reload).
"""


def toml(value: object) -> str:
    """Format a value as TOML."""
    if isinstance(value, list):
        return f"[{', '.join(toml(each) for each in value)}]"
    # JSON strings are valid TOML, except for DEL and for the escapes of characters beyond the basic plane
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F") if isinstance(value, str) else said(value)


def example_file() -> str:
    """Return a complete configuration file in which every setting is explained and commented out."""
    lines = [HEAD]
    for title, settings in SECTIONS.items():
        lines += [f"\n# ---- {title} {'-' * (WIDTH - len(title) - 8)}\n"]
        for setting in settings:
            lines += [*_remarks(setting), f"#{setting.name} = {toml(_shown(setting))}\n"]
    return "\n".join(lines)


def _shown(setting: Setting) -> object:
    if setting.is_secret:
        return "secret"
    return setting.default if setting.default not in (None, []) else setting.example


def _remarks(setting: Setting) -> Iterator[str]:
    facts = [*([setting.unit] if setting.unit else []), *(["live"] if setting.is_live else [])]
    absence = f" Default: {setting.absent}." if setting.absent else ""
    text = f"{setting.doc}{absence}" + (f" ({', '.join(facts)})" if facts else "")
    yield from textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def in_effect(chosen: Chosen) -> str:
    """Return all values with their origins, as TOML; secrets are hidden."""
    lines = []
    for title, settings in SECTIONS.items():
        lines.append(f"# {title}")
        for setting in settings:
            value = chosen[setting.name]
            origin = chosen.origins[setting.name]
            if setting.is_secret and value is not None:
                text = f"#{setting.name} = {toml(HIDDEN)}"
            elif value is None:
                text, origin = f"#{setting.name}", f"{DEFAULT}: {setting.absent}"
            else:
                text = f"{setting.name} = {toml(value)}"
            lines.append(f"{text}  # {origin}")
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """Return the text of docs/reference/configuration.md."""
    lines = [PAGE]
    for title, settings in SECTIONS.items():
        lines += [f"## {title}", ""]
        for setting in settings:
            ways = [f"`{setting.option}`"] if setting.option else []
            default = setting.absent if setting.default is None else f"`{toml(setting.default)}`"
            if setting.is_secret:
                default = setting.absent or "see default_user"
            facts = [
                f"{setting.kind.description[0].upper()}{setting.kind.description[1:]}",
                *([f"unit: {setting.unit}"] if setting.unit else []),
                f"default: {default}",
                ", ".join([*ways, f"`{setting.variable}`"]),
                "live" if setting.is_live else "at the next start",
            ]
            lines += [f"### {setting.name}", "", *textwrap.wrap(setting.doc, 118), "", f"{'; '.join(facts)}.", ""]
    return "\n".join(lines)
