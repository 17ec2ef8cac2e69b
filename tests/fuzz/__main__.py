"""python -m tests.fuzz NAME [options of libFuzzer]: fuzz one of the harnesses, on the interpreted core.

The corpus is unpacked into build/fuzz/NAME/, where the run adds to it, and leaves the input of a finding beside it
(crash-..., also timeout-... and oom-...). `python -m tests.fuzz NAME --keep` packs what is needed of it for the same
coverage into tests/fuzz/corpus/NAME.zip.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import atheris

from .corpus import NAMES, merge, unpack

# a small input says as much as a large one, and is done sooner; more than 20 s, or than 1 GiB, is a finding
OPTIONS = ("-len_control=0", "-max_len=4096", "-timeout=20", "-rss_limit_mb=1024", "-print_final_stats=1")


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in NAMES:
        sys.exit(f"usage: python -m tests.fuzz {'|'.join(NAMES)} [--keep | options of libFuzzer]")
    name, *options = arguments
    directory = Path("build/fuzz") / name
    if options == ["--keep"]:
        merge(name, directory)
        return
    unpack(name, directory)
    with atheris.instrument_imports(include=["leveret"], enable_loader_override=False):
        harness = importlib.import_module(f"tests.fuzz.{name}")
    prefix = f"-artifact_prefix={directory.parent}/{name}-"
    atheris.Setup([sys.argv[0], *OPTIONS, prefix, *options, str(directory)], harness.one_input)
    atheris.Fuzz()


main(sys.argv[1:])
