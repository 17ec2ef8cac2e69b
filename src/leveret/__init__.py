"""leveret: a RabbitMQ-compatible message broker, its clients, delayed delivery and a Spark data source.

This module stays small: Spark's executors import it for ``leveret.spark``, where no broker is needed.
"""

from typing import TYPE_CHECKING, Final

from leveret import _core

if TYPE_CHECKING:
    from leveret.endpoint import Endpoint as Endpoint

__all__ = ["__version__", "core", "core_reason"]

__version__: Final = "0.1.0"

_CORE: Final = _core.choose()


def core() -> _core.Kind:
    """Which form of the core (wire, session, broker) this process uses: "compiled" or "interpreted"."""
    return _CORE.kind


def core_reason() -> str:
    """Why the core is interpreted, and how to get the compiled one; "" if it is compiled."""
    return _CORE.reason


def __getattr__(name: str) -> object:
    """Import ``leveret.Endpoint`` on first use."""
    if name == "Endpoint":
        from leveret.endpoint import Endpoint

        return Endpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
