"""Everything the client raises. The codes and texts are those the broker sent (AMQP 0-9-1, section 1.2)."""

from __future__ import annotations

from leveret.wire.properties import Properties


class ClientError(Exception):
    """The root of the client's errors."""


class ConnectionClosed(ClientError):
    """The connection is gone. code: the reply code, or 0 when the socket broke without a word; text: the reason."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code} {self.text}" if self.code else self.text


class AuthenticationFailed(ConnectionClosed):
    """The broker did not accept the user or the password (403)."""


class ChannelClosed(ClientError):
    """The broker closed the channel, or it was closed here.

    code: reply code (int); text: the broker's reply text; class_id and method_id: the method it objected to, 0 if none.
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
    """The broker ended a consumer, as it does when the queue is deleted. consumer_tag: which one."""

    def __init__(self, consumer_tag: str) -> None:
        super().__init__(consumer_tag)
        self.consumer_tag = consumer_tag

    def __str__(self) -> str:
        return f"the broker cancelled consumer {self.consumer_tag!r}; its queue is probably deleted"


class PublishError(ClientError):
    """A publish that was not accepted."""


class Nacked(PublishError):
    """The broker refused a message with basic.nack. sequence: its number on the channel, counted from 1."""

    def __init__(self, sequence: int) -> None:
        super().__init__(sequence)
        self.sequence = sequence

    def __str__(self) -> str:
        return f"the broker refused publish number {self.sequence} (basic.nack)"


class Unroutable(PublishError):
    """A mandatory message came back because no queue took it (basic.return, 312 NO_ROUTE as a rule)."""

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


class RpcTimeout(ClientError, TimeoutError):
    """No reply came in time. correlation_id: of the request; timeout_s: how long it waited, in seconds."""

    def __init__(self, correlation_id: str, timeout_s: float) -> None:
        super().__init__(correlation_id, timeout_s)
        self.correlation_id = correlation_id
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"no reply to request {self.correlation_id} within {self.timeout_s:g} s"
