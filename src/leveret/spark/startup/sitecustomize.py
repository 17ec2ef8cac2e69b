"""Imported first by the Python processes of a local Spark: they take PySpark from its installation, which has bytecode.

Spark puts a zip file of the same modules first on the path, and every Python process would compile them: half a second
of processor time. If the file belongs to another installation, it stays. Then the sitecustomize of the environment is
imported, which this one hides.
"""

import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def prefer_bytecode() -> None:
    """Remove from the path the zip files that lie in the installations of their packages' bytecode."""
    zips = [place for place in sys.path if place.endswith(".zip") and "/python/lib/py" in place]
    rest = [place for place in sys.path if place not in zips]
    spec = PathFinder.find_spec("pyspark", rest)
    if spec is None or spec.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return
    own = (Path(spec.origin).parent / "python" / "lib").resolve()
    sys.path[:] = [place for place in sys.path if place not in zips or Path(place).parent.resolve() != own]


def import_hidden() -> None:
    """Import the next sitecustomize on the path, if there is one."""
    here = Path(__file__).parent
    sys.path[:] = [place for place in sys.path if Path(place) != here]
    if PathFinder.find_spec("sitecustomize", sys.path) is not None:
        del sys.modules["sitecustomize"]
        importlib.import_module("sitecustomize")


if __name__ == "sitecustomize":
    prefer_bytecode()
    import_hidden()
