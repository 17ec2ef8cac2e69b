"""A client for AMQP 0-9-1 brokers (leveret, RabbitMQ): connect() for asyncio, BlockingConnection without it."""

from leveret.client.aio import Connection, connect
from leveret.client.aio_channel import Channel, Consumer
from leveret.client.blocking import BlockingConnection
from leveret.client.blocking_channel import BlockingChannel
from leveret.client.blocking_rpc import BlockingRpc
from leveret.client.blocking_rpc_server import BlockingRpcServer
from leveret.client.protocol.codecs import JSON, MSGPACK, Codec, msgspec_struct, pydantic_model
from leveret.client.protocol.errors import (
    AuthenticationFailed,
    ChannelClosed,
    ClientError,
    ConnectionClosed,
    ConsumerCancelled,
    Nacked,
    OutboxFull,
    PublishError,
    PublishTimeout,
    RpcInterrupted,
    RpcTimeout,
    TransactionLost,
    UndecodableBody,
    Unroutable,
)
from leveret.client.protocol.model import Delivery, QueueInfo
from leveret.client.protocol.publisher import PublisherReferencesMissing
from leveret.client.protocol.reconnect import Reconnect
from leveret.client.rpc import Rpc
from leveret.client.rpc_server import RpcServer
from leveret.client.stage import StagesMissing
from leveret.wire.properties import Properties

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
    "connect",
    "msgspec_struct",
    "pydantic_model",
]
