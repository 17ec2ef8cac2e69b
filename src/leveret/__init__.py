"""leveret: a RabbitMQ-compatible message broker, its clients, delayed delivery and a Spark data source.

This module stays small: Spark's executors import it for ``leveret.spark``, where no broker is needed.
"""

import importlib.util
from importlib.machinery import ExtensionFileLoader
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from leveret.endpoint import Endpoint as Endpoint

__all__ = ["__version__", "core"]

__version__: Final = "0.1.0"


def core() -> Literal["compiled", "interpreted"]:
    """Which form of the core (wire, session, broker) this process uses.

    The same typed sources run as they are, or compiled by mypyc to extension modules; which one is
    decided by the directory that Python finds the package in. All rooms are compiled together or not at
    all, so one module answers for them.
    """
    spec = importlib.util.find_spec("leveret.wire.frames")
    return "compiled" if spec is not None and isinstance(spec.loader, ExtensionFileLoader) else "interpreted"


def __getattr__(name: str) -> object:
    """``leveret.Endpoint``, imported when it is asked for."""
    if name == "Endpoint":
        from leveret.endpoint import Endpoint

        return Endpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
