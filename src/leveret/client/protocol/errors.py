"""The errors that the client raises. Codes and texts are those that the broker sent (AMQP 0-9-1, section 1.2)."""

from __future__ import annotations

from collections.abc import Sequence

from leveret.wire.errors import CONNECTION_FORCED
from leveret.wire.properties import Properties


class ClientError(Exception):
    """The base class of the client's errors."""


class FeatureMissing(ClientError):
    """The broker lacks something that leveret has: it is not leveret, or an older version.

    Attributes:
        answer (str): The error that the broker answered.
    """

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


class ConnectionClosed(ClientError):
    """The connection was closed by either side, or lost.

    Attributes:
        code (int): AMQP reply code, 200 after close(), 0 if the connection was lost without connection.close.
        text (str): The reason.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code} {self.text}" if self.code else self.text


class AuthenticationFailed(ConnectionClosed):
    """The broker refused the user or the password (403)."""


def may_try_another_host(error: ConnectionClosed) -> bool:
    """Whether another host may accept what this one has not: it did not answer, or is about to stop."""
    return error.code in (0, CONNECTION_FORCED)


def nobody_answered(failures: Sequence[ConnectionClosed]) -> ConnectionClosed:
    """Return the error for hosts that were tried in turn: the only one's own, or one that tells of all."""
    if len(failures) == 1:
        return failures[0]
    texts = "; ".join(map(str, failures))
    return ConnectionClosed(0, f"none of {len(failures)} hosts accepted the connection: {texts}")


class ChannelClosed(ClientError):
    """The channel was closed by the broker, because of an error, or by this client.

    Attributes:
        code (int): AMQP reply code, such as 404 or 406; 200 after close().
        text (str): The broker's reply text.
        class_id (int): Class of the method that failed, 0 if none did.
        method_id (int): The method that failed, 0 if none did.
    """

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, text, class_id, method_id)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


class ConsumerCancelled(ClientError):
    """The broker ended a consumer, for instance because its queue was deleted.

    Attributes:
        consumer_tag (str): Tag of the consumer.
    """

    def __init__(self, consumer_tag: str) -> None:
        super().__init__(consumer_tag)
        self.consumer_tag = consumer_tag

    def __str__(self) -> str:
        return f"the broker cancelled consumer {self.consumer_tag!r}; its queue is probably deleted"


class TransactionLost(ClientError):
    """The connection was lost within a transaction, so nothing of it took effect; the channel goes on with a new one.

    Attributes:
        is_unknown (bool): The commit was under way when the connection was lost, so it may have taken effect.
    """

    def __init__(self, is_unknown: bool) -> None:
        super().__init__(is_unknown)
        self.is_unknown = is_unknown

    def __str__(self) -> str:
        if self.is_unknown:
            return "the connection was lost while the transaction was committed; whether it took effect is unknown"
        return "the connection was lost within the transaction, so the broker has rolled it back; begin it again"


class OutboxFull(ClientError):
    """Too many publishes of a channel wait for their confirms or for the connection.

    Attributes:
        messages (int): How many wait.
        octets (int): How many octets they take.
    """

    def __init__(self, messages: int, octets: int) -> None:
        super().__init__(messages, octets)
        self.messages = messages
        self.octets = octets

    def __str__(self) -> str:
        waiting = f"{self.messages} publishes with {self.octets} octets wait for the broker"
        return f"{waiting}, which is the limit (Reconnect.outbox_max); await drain() between publishes"


class PublishError(ClientError):
    """The base class of the errors of one publish."""


class Nacked(PublishError):
    """The broker refused a message with basic.nack.

    Attributes:
        sequence (int): Number of the message on its channel, from 1.
    """

    def __init__(self, sequence: int) -> None:
        super().__init__(sequence)
        self.sequence = sequence

    def __str__(self) -> str:
        return f"the broker refused publish number {self.sequence} (basic.nack)"


class Unroutable(PublishError):
    """The broker returned a mandatory message because no queue took it (basic.return).

    Attributes:
        reply_code (int): AMQP reply code, as a rule 312.
        reply_text (str): The broker's reply text, as a rule NO_ROUTE.
        exchange (str): Exchange of the message.
        routing_key (str): Its routing key.
        body (bytes): Its content.
        properties (Properties): Its properties.
    """

    def __init__(
        self, reply_code: int, reply_text: str, exchange: str, routing_key: str, body: bytes, properties: Properties
    ) -> None:
        super().__init__(reply_code, reply_text, exchange, routing_key, body, properties)
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.exchange = exchange
        self.routing_key = routing_key
        self.body = body
        self.properties = properties

    def __str__(self) -> str:
        where = f"exchange {self.exchange!r}" if self.exchange else "the default exchange"
        return f"{self.reply_code} {self.reply_text}: {where} has no queue for routing key {self.routing_key!r}"


class PublishTimeout(PublishError, TimeoutError):
    """A message was not confirmed within the time that its publisher allowed. Also a TimeoutError.

    Attributes:
        timeout_s (float): That time in seconds.
        was_sent (bool): The message was sent, so the broker may have it; otherwise it will not be sent any more.
    """

    def __init__(self, timeout_s: float, was_sent: bool) -> None:
        super().__init__(timeout_s, was_sent)
        self.timeout_s = timeout_s
        self.was_sent = was_sent

    def __str__(self) -> str:
        end = "it was sent, so the broker may have it" if self.was_sent else "it was not sent: the connection is lost"
        return f"the message was not confirmed within {self.timeout_s:g} s; {end}"


class UndecodableBody(ClientError, ValueError):
    """The body of a message is not what a codec expects. Also a ValueError.

    Attributes:
        codec (str): Name of the codec.
        message (str): The delivery, as text.
        properties (Properties): Properties of the message.
        reason (Exception): What the codec raised.
    """

    def __init__(self, codec: str, message: str, properties: Properties, reason: Exception) -> None:
        super().__init__(codec, message, properties, reason)
        self.codec = codec
        self.message = message
        self.properties = properties
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.codec} cannot decode the body of {self.message} (message_id {self.properties.message_id!r},"
            f" content_type {self.properties.content_type!r}): {self.reason}; it would fail again, so reject it without"
            " requeue: delivery.reject(requeue=False)"
        )


class RpcInterrupted(ClientError):
    """The connection was lost after a request was sent, so it may have been carried out; its reply will not come.

    Attributes:
        correlation_id (str): Correlation id of the request.
    """

    def __init__(self, correlation_id: str) -> None:
        super().__init__(correlation_id)
        self.correlation_id = correlation_id

    def __str__(self) -> str:
        return (
            f"the connection was lost before request {self.correlation_id} was answered; it may have been carried out"
            " (a call with idempotent=True is repeated by itself)"
        )


class RpcTimeout(ClientError, TimeoutError):
    """An RPC request had no reply in time. Also a TimeoutError.

    Attributes:
        correlation_id (str): Correlation id of the request.
        timeout_s (float): How long the request waited, in seconds.
    """

    def __init__(self, correlation_id: str, timeout_s: float) -> None:
        super().__init__(correlation_id, timeout_s)
        self.correlation_id = correlation_id
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"no reply to request {self.correlation_id} within {self.timeout_s:g} s"
