"""What spark-submit runs for ``leveret spark submit PIPELINE``; in a directory of its own, which Spark makes the first
place where Python looks for modules."""

from __future__ import annotations

import sys
import zipfile


def run() -> None:
    """The command line behind the name of this file is that of ``leveret spark``."""
    # Executors know no more of leveret than the zip. The driver has all of it, and Spark puts the zip before that.
    sys.path[:] = [entry for entry in sys.path if not _is_for_executors(entry)]
    from leveret.cli.main import main

    main(["spark", *sys.argv[1:]], "leveret")


def _is_for_executors(entry: str) -> bool:
    return zipfile.is_zipfile(entry) and "leveret/__init__.py" in zipfile.ZipFile(entry).namelist()


if __name__ == "__main__":
    run()
