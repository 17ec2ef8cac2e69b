"""python -m tests.fuzz NAME [options of libFuzzer]: fuzz one of the harnesses, on the interpreted core.

The corpus is unpacked into build/fuzz/NAME/. The run adds to it, and writes the input of a finding beside it
(crash-..., also timeout-... and oom-...). `python -m tests.fuzz NAME --keep` packs the smallest set of inputs with the
same coverage into tests/fuzz/corpus/NAME.zip.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import atheris

from .corpus import NAMES, merge, unpack

# a small input finds as much as a large one, and runs faster; more than 20 s or 1 GiB is a finding
OPTIONS = ("-len_control=0", "-max_len=4096", "-timeout=20", "-rss_limit_mb=1024", "-print_final_stats=1")


def main(arguments: list[str]) -> None:
    is_again = arguments[:1] == ["--again"]
    arguments = arguments[is_again:]
    if not arguments or arguments[0] not in NAMES:
        sys.exit(f"usage: python -m tests.fuzz {'|'.join(NAMES)} [--keep | options of libFuzzer]")
    name, *options = arguments
    directory = Path("build/fuzz") / name
    if options == ["--keep"]:
        merge(name, directory)
        return
    if not is_again:
        unpack(name, directory)
        prefix = f"-artifact_prefix={directory.parent}/{name}-"
        options = [*OPTIONS, prefix, *options, *([] if _has_place(options) else [str(directory)])]
    with atheris.instrument_imports(include=["leveret"], enable_loader_override=False):
        harness = importlib.import_module(f"tests.fuzz.{name}")
    atheris.Setup([str(_program(name)), *options], harness.one_input)
    atheris.Fuzz()


def _has_place(options: list[str]) -> bool:
    """Return whether the options name inputs or directories of inputs."""
    return any(not each.startswith("-") for each in options)


def _program(name: str) -> Path:
    """Write a program that libFuzzer can start instead of itself, as it does to merge; it cannot start `python -m`."""
    path = Path("build/fuzz") / f"again-{name}"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.fuzz --again {name} "$@"\n')
    path.chmod(0o755)
    return path.absolute()


main(sys.argv[1:])
