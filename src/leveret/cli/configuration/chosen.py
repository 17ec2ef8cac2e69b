"""Chosen settings: from options, else environment variables, else the file, else defaults."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from leveret.cli.configuration.settings import PREFIX, SETTINGS, Setting

DEFAULT: Final = "default"
StrPath = str | os.PathLike[str]
# Kubernetes sets such variables for a Service called leveret; they are not settings
_SERVICE: Final = "tcp://"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The values of all settings.

    Attributes:
        values: by name.
        origins: the source of each: "--port", "LEVERET_PORT", the path of the file, or DEFAULT.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def is_given(self, name: str) -> bool:
        """Whether the setting was set, not defaulted."""
        return self.origins[name] != DEFAULT

    def differs(self, other: Chosen) -> list[Setting]:
        """Return the settings whose values differ."""
        return [each for each in SETTINGS.values() if self.values[each.name] != other.values[each.name]]


def choose(options: Mapping[str, object], path: StrPath | None, environment: Mapping[str, str]) -> Chosen:
    """Combine options (name -> value), a file, and environment variables. Raises click.UsageError."""
    values: dict[str, object] = {name: setting.default for name, setting in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, DEFAULT)
    sources: list[tuple[dict[str, object], dict[str, str]]] = []
    if path is not None:
        found = read_file(path)
        sources.append((found, dict.fromkeys(found, str(path))))
    found = read_environment(environment)
    sources.append((found, {name: SETTINGS[name].variable for name in found}))
    found = dict(options)
    sources.append((found, {name: SETTINGS[name].option for name in found}))
    for found, places in sources:
        values |= found
        origins |= places
    return Chosen(values, origins)


def read_file(path: StrPath) -> dict[str, object]:
    """Read settings from a TOML file. Raises click.UsageError for invalid TOML, an unknown key, or a wrong value."""
    import tomllib

    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    for name in table:
        if name not in SETTINGS:
            near = _near(name, SETTINGS)
            hint = f"; did you mean {near[0]!r}?" if near else "; `leveret serve --print-config` lists all settings"
            raise click.UsageError(f"{path}: unknown setting {name!r}{hint}")
    return {name: _checked(SETTINGS[name], value, f"{path}: {name}") for name, value in table.items()}


def _checked(setting: Setting, value: object, place: str) -> object:
    try:
        return setting.kind.check(value)
    except ValueError:
        raise click.UsageError(f"{place} must be {setting.kind.description}, not {_shown(setting, value)}") from None


def read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """Read settings from environment variables; empty ones are ignored. Raises click.UsageError for a wrong value."""
    return {
        name: parsed(setting, text, setting.variable)
        for name, setting in SETTINGS.items()
        if (text := environment.get(setting.variable)) and not (name == "port" and text.startswith(_SERVICE))
    }


def parsed(setting: Setting, text: str, place: str) -> object:
    """Parse a setting's text. Raises click.UsageError."""
    try:
        return setting.kind.parse(text)
    except ValueError:
        raise click.UsageError(f"{place} must be {setting.kind.description}, not {_shown(setting, text)}") from None


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """Return warnings for variables whose names resemble a setting's: they would be ignored silently."""
    known = [name.upper() for name in SETTINGS]
    found = []
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in known:
            near = _near(name, known, 0.85)
            found += [f"unknown environment variable {variable}; did you mean {PREFIX}{near[0]}?"] if near else []
    return found


def _near(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, list(known), 1, cutoff)


def _shown(setting: Setting, value: object) -> str:
    return "***" if setting.is_secret else repr(value)


def options(command: click.Command) -> None:
    """Add an option for each setting to the command, and a help text grouped by sections."""
    command.params += [_option(setting) for setting in SETTINGS.values() if not setting.is_secret]


def _option(setting: Setting) -> click.Option:
    def parse(text: str) -> object:
        return parsed(setting, text, setting.option)

    default = setting.absent or said(setting.default)
    return click.Option(
        [setting.option], type=parse, metavar=setting.kind.metavar,
        multiple=isinstance(setting.default, list), help=f"{setting.summary}  [default: {default}]",
    )  # fmt: skip


def given(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the command's parameters that are settings and were given."""
    found: dict[str, object] = {}
    for name, value in parameters.items():
        if name in SETTINGS and value is not None and value != ():
            found[name] = [each for group in value for each in group] if isinstance(value, tuple) else value
    return found


def said(value: object) -> str:
    """Format a value for people."""
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
