"""leveret spark zip: packs what Spark's executors need of leveret into one file for --py-files. See
docs/guides/spark/cluster.md."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

import leveret

ROOMS: Final = ("wire", "client", "delay", "spark", "pipelines")
EXCLUDED: Final = frozenset({"wire/scan.py", "pipelines/audits/drawing.py", "spark/startup/sitecustomize.py"})
"""Modules that executors do not need: the broker's wire/scan.py requires librt, drawing.py requires matplotlib, and
sitecustomize.py is for a path of directories."""
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a zip file; fixed, so that the same sources give the same file."""


@click.command("zip")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("leveret.zip"),
              show_default=True, help="File to write.")  # fmt: skip
def command(output: Path) -> None:
    """Package leveret for executors that have only pyarrow: spark-submit --py-files leveret.zip.

    The file contains the clients, the delay levels and the data source as pure Python, but not the broker.
    """
    try:
        write_zip(output)
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
    click.echo(f"{output}: {output.stat().st_size:,} octets")


def write_zip(output: Path, package: Path = Path(leveret.__file__).parent) -> None:
    """Write the zip from the sources of a package; the same sources give the same bytes.

    Raises ``click.ClickException`` if a module has no source file, and ``OSError``.
    """
    names = sorted(_sources(package))
    draft = output.with_name(f".{output.name}.draft")
    # stored: zlib versions compress differently, and Python imports uncompressed files faster
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as file:
        for name in names:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            file.writestr(entry, (package.parent / name).read_bytes())
    draft.replace(output)


def _sources(package: Path) -> Iterator[str]:
    """Yield the names in the zip: paths relative to the package's parent directory."""
    yield "pyspark_leveret.py"
    yield from ("leveret/__init__.py", "leveret/_core.py", "leveret/tcp_settings.py")
    for room in ROOMS:
        for path in (package / room).rglob("*"):
            name = path.relative_to(package).as_posix()
            if path.suffix == ".so" and not path.with_name(f"{path.name.partition('.')[0]}.py").exists():
                raise click.ClickException(f"{name} is compiled and its source file is missing: reinstall leveret")
            if path.suffix == ".py" and name not in EXCLUDED:
                yield f"leveret/{name}"
