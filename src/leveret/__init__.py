"""leveret: a RabbitMQ-compatible message broker, its clients, delayed delivery and a Spark data source.

The client stands here: ``from leveret import connect, BlockingConnection, Properties``. Tests find brokers in
``leveret.testing``, Spark its source, sink and session in ``leveret.spark``, and services their handlers in
``leveret.endpoint``.

The client is imported when one of its names is asked for: Spark's executors import this package for ``leveret.spark``,
where none is needed.
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Final

from leveret import _core

if TYPE_CHECKING:
    from leveret.client import (
        JSON,
        MSGPACK,
        AuthenticationFailed,
        BlockingChannel,
        BlockingConnection,
        BlockingRpc,
        BlockingRpcServer,
        Channel,
        ChannelClosed,
        ClientError,
        Codec,
        Connection,
        ConnectionClosed,
        Consumer,
        ConsumerCancelled,
        Delivery,
        Nacked,
        OutboxFull,
        Properties,
        PublisherReferencesMissing,
        PublishError,
        PublishTimeout,
        QueueInfo,
        Reconnect,
        Rpc,
        RpcInterrupted,
        RpcServer,
        RpcTimeout,
        StagesMissing,
        TransactionLost,
        UndecodableBody,
        Unroutable,
        connect,
        msgspec_struct,
        pydantic_model,
    )

__all__ = [
    "JSON",
    "MSGPACK",
    "AuthenticationFailed",
    "BlockingChannel",
    "BlockingConnection",
    "BlockingRpc",
    "BlockingRpcServer",
    "Channel",
    "ChannelClosed",
    "ClientError",
    "Codec",
    "Connection",
    "ConnectionClosed",
    "Consumer",
    "ConsumerCancelled",
    "Delivery",
    "Nacked",
    "OutboxFull",
    "Properties",
    "PublishError",
    "PublishTimeout",
    "PublisherReferencesMissing",
    "QueueInfo",
    "Reconnect",
    "Rpc",
    "RpcInterrupted",
    "RpcServer",
    "RpcTimeout",
    "StagesMissing",
    "TransactionLost",
    "UndecodableBody",
    "Unroutable",
    "__version__",
    "connect",
    "core",
    "core_reason",
    "msgspec_struct",
    "pydantic_model",
]

__version__: Final = "0.1.0"

_CORE: Final = _core.choose()


def core() -> _core.Kind:
    """Which form of the core (wire, session, broker) this process uses: "compiled" or "interpreted"."""
    return _CORE.kind


def core_reason() -> str:
    """Why the core is interpreted, and how to get the compiled one; "" if it is compiled."""
    return _CORE.reason


def __getattr__(name: str) -> object:
    """Import the client when one of its names is asked for."""
    if name in __all__:
        return getattr(importlib.import_module("leveret.client"), name)
    if name == "Endpoint":
        warnings.warn(
            "leveret.Endpoint is deprecated and will be removed in 0.3; use leveret.endpoint.Endpoint",
            DeprecationWarning,
            stacklevel=2,
        )
        return importlib.import_module("leveret.endpoint").Endpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
