"""leveret spark zip: what Spark's executors need of leveret, in one file for --py-files.
docs/guides/spark/cluster.md."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

import leveret

ROOMS: Final = ("wire", "client", "delay", "spark", "pipelines")
EXCLUDED: Final = frozenset({"wire/scan.py", "pipelines/audits/drawing.py"})
"""Only brokers look at headers without decoding them, and only by the helpers of compiled code, which need librt; and
executors draw nothing, for which they would need matplotlib."""
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold: the same sources give the same file."""


@click.command("zip")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("leveret.zip"),
              show_default=True, help="The file to write.")  # fmt: skip
def command(output: Path) -> None:
    """Write leveret for executors that have nothing but pyarrow: spark-submit --py-files leveret.zip.

    The file holds the clients, the delay levels and the data source as pure Python, and nothing of the broker.
    """
    try:
        write_zip(output)
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
    click.echo(f"{output}: {output.stat().st_size:,} octets")


def write_zip(output: Path, package: Path = Path(leveret.__file__).parent) -> None:
    """Write the zip from the sources of a package; the same sources give the same octets.

    Raises ``click.ClickException`` where a module has no source there, and ``OSError``.
    """
    names = sorted(_sources(package))
    draft = output.with_name(f".{output.name}.draft")
    # stored: zlib's versions compress differently, and Python imports it faster
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as file:
        for name in names:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            file.writestr(entry, (package.parent / name).read_bytes())
    draft.replace(output)


def _sources(package: Path) -> Iterator[str]:
    """Names in the zip, which are those of the files beside the package."""
    yield "pyspark_leveret.py"
    yield from ("leveret/__init__.py", "leveret/_core.py")
    for room in ROOMS:
        for path in (package / room).rglob("*"):
            name = path.relative_to(package).as_posix()
            if path.suffix == ".so" and not path.with_name(f"{path.name.partition('.')[0]}.py").exists():
                raise click.ClickException(f"{name} is compiled and its source is not beside it: install leveret anew")
            if path.suffix == ".py" and name not in EXCLUDED:
                yield f"leveret/{name}"
