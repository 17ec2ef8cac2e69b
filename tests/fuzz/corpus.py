"""The inputs that earlier runs kept, one archive per harness, so that a thousand small inputs are one file."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha1
from pathlib import Path

NAMES = ("wire", "broker", "journal", "texts")
# each test run replays these inputs: larger ones take longer and find little more
KEPT_OCTETS_MAX = 700
CORPUS = Path(__file__).parent / "corpus"


def inputs(name: str) -> list[tuple[str, bytes]]:
    """Return (name, octets) of each input of a harness, in order of names."""
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
    """Make the harness's archive of the files in a directory; the same files make the same archive."""
    CORPUS.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPUS / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        found = {sha1(data).hexdigest(): data for data in (path.read_bytes() for path in directory.iterdir())}
        for each in sorted(found):
            archive.writestr(zipfile.ZipInfo(each), found[each], zipfile.ZIP_DEFLATED)


def merge(name: str, directory: Path) -> None:
    """Pack the inputs of a directory that are needed for the same coverage (libFuzzer's -set_cover_merge=1)."""
    unpack(name, directory)
    with tempfile.TemporaryDirectory() as found:
        kept, small = Path(found) / "kept", Path(found) / "small"
        kept.mkdir()
        small.mkdir()
        for path in directory.iterdir():
            if path.stat().st_size <= KEPT_OCTETS_MAX:
                shutil.copy(path, small)
        subprocess.run(
            [sys.executable, "-m", "tests.fuzz", name, "-set_cover_merge=1", str(kept), str(small)], check=True
        )
        if not any(kept.iterdir()):
            sys.exit(f"the inputs of {name} could not be merged")
        pack(name, kept)
