"""The script that spark-submit runs for ``leveret spark submit PIPELINE``.

It is in a directory of its own, because Spark puts that directory first on sys.path.
"""

from __future__ import annotations

import sys
import zipfile


def run() -> None:
    """Run the command line as that of ``leveret spark``."""
    # executors import leveret from the zip only; the driver has all of it installed, but Spark puts the zip first
    sys.path[:] = [entry for entry in sys.path if not _is_for_executors(entry)]
    from leveret.cli.main import main

    main(["spark", *sys.argv[1:]], "leveret")


def _is_for_executors(entry: str) -> bool:
    return zipfile.is_zipfile(entry) and "leveret/__init__.py" in zipfile.ZipFile(entry).namelist()


if __name__ == "__main__":
    run()
