"""py-amqp's errors in the place of those of leveret's client: programs and Celery catch py-amqp's."""

from __future__ import annotations

import amqp
from amqp.exceptions import ChannelError, MessageNacked, RecoverableConnectionError, error_for_code

from leveret.client.protocol.errors import ChannelClosed, ClientError, ConnectionClosed, PublishError
from leveret.wire.errors import NOT_IMPLEMENTED


def translated(error: ClientError) -> Exception:
    """Return the error that py-amqp raises in the place of this one of leveret's client."""
    if isinstance(error, ConnectionClosed):
        cause = error.__cause__
        if isinstance(cause, OSError):
            return cause  # the connection could not be established
        if error.code in (0, 200):
            return _lost(error.text)
        return _py_amqp_error(error.code, error.text, (0, 0), amqp.ConnectionError)
    if isinstance(error, ChannelClosed):
        if error.code == 200:
            return _lost(error.text)
        return _py_amqp_error(error.code, error.text, (error.class_id, error.method_id), ChannelError)
    return MessageNacked() if isinstance(error, PublishError) else error


def _lost(text: str) -> Exception:
    lost: Exception = RecoverableConnectionError(text)
    return lost


def _py_amqp_error(code: int, text: str, method: tuple[int, int], default: type[Exception]) -> Exception:
    error: Exception = error_for_code(code, text, method if any(method) else None, default)
    return error


def not_implemented(what: str) -> Exception:
    return _py_amqp_error(NOT_IMPLEMENTED, f"neither RabbitMQ nor leveret implements {what}", (0, 0), ChannelError)
