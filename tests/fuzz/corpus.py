"""What runs have found worth keeping: one archive per harness, so that a thousand small inputs are one file."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha1
from pathlib import Path

NAMES = ("wire", "broker", "journal", "texts")
CORPUS = Path(__file__).parent / "corpus"


def inputs(name: str) -> list[tuple[str, bytes]]:
    """(name, octets) of each input of a harness, in order of names."""
    path = CORPUS / f"{name}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [(each, archive.read(each)) for each in sorted(archive.namelist())]


def unpack(name: str, directory: Path) -> None:
    """Add the harness's inputs to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for each, data in inputs(name):
        (directory / each).write_bytes(data)


def pack(name: str, directory: Path) -> None:
    """Make the harness's archive of the files in a directory; the same ones make the same archive."""
    CORPUS.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPUS / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        found = {sha1(data).hexdigest(): data for data in (path.read_bytes() for path in directory.iterdir())}
        for each in sorted(found):
            archive.writestr(zipfile.ZipInfo(each), found[each], zipfile.ZIP_DEFLATED)


def merge(name: str, directory: Path) -> None:
    """Keep of a directory what is needed for the same coverage (libFuzzer's -merge=1), and pack that."""
    with tempfile.TemporaryDirectory() as kept:
        command = [sys.executable, "-m", "tests.fuzz", name, "-merge=1", kept]
        subprocess.run(command, check=True)
        pack(name, Path(kept))
    shutil.rmtree(directory)
    unpack(name, directory)
