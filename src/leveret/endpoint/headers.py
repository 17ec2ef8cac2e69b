"""Names of the headers of NServiceBus endpoints (docs.particular.net, "Message Headers"), and of leveret's own."""

from __future__ import annotations

from typing import Final

MESSAGE_ID: Final = "NServiceBus.MessageId"
CORRELATION_ID: Final = "NServiceBus.CorrelationId"
CONVERSATION_ID: Final = "NServiceBus.ConversationId"
RELATED_TO: Final = "NServiceBus.RelatedTo"
MESSAGE_INTENT: Final = "NServiceBus.MessageIntent"
MESSAGE_TYPES: Final = "NServiceBus.EnclosedMessageTypes"
"""Names of the message's type and its parent types, separated by ``;``, the most derived first."""
CONTENT_TYPE: Final = "NServiceBus.ContentType"
ORIGINATING_ENDPOINT: Final = "NServiceBus.OriginatingEndpoint"
ORIGINATING_MACHINE: Final = "NServiceBus.OriginatingMachine"
REPLY_TO: Final = "NServiceBus.ReplyToAddress"
CALLBACK_QUEUE: Final = "NServiceBus.RabbitMQ.CallbackQueue"
"""Reply address of endpoints of NServiceBus 5 and older; takes precedence over REPLY_TO."""
TIME_SENT: Final = "NServiceBus.TimeSent"
IS_DEFERRED: Final = "NServiceBus.IsDeferredMessage"
NON_PERSISTENT: Final = "NServiceBus.Transport.RabbitMQ.UseNonPersistentDelivery"
CONFIRMATION_ID: Final = "NServiceBus.Transport.RabbitMQ.ConfirmationId"

PROCESSING_ENDPOINT: Final = "NServiceBus.ProcessingEndpoint"
PROCESSING_MACHINE: Final = "NServiceBus.ProcessingMachine"

DELAYED_RETRIES: Final = "NServiceBus.Retries"
"""Number of delayed retries so far; removed when the message goes to the error queue."""
DELAYED_RETRIES_AT: Final = "NServiceBus.Retries.Timestamp"
IMMEDIATE_RETRIES: Final = "NServiceBus.FLRetries"

FAILED_QUEUE: Final = "NServiceBus.FailedQ"
TIME_OF_FAILURE: Final = "NServiceBus.TimeOfFailure"
EXCEPTION: Final = "NServiceBus.ExceptionInfo."
EXCEPTION_TYPE: Final = EXCEPTION + "ExceptionType"
EXCEPTION_INNER_TYPE: Final = EXCEPTION + "InnerExceptionType"
EXCEPTION_MESSAGE: Final = EXCEPTION + "Message"
EXCEPTION_SOURCE: Final = EXCEPTION + "Source"
EXCEPTION_STACK: Final = EXCEPTION + "StackTrace"
FAILED_AFTER_IMMEDIATE: Final = "Leveret.ImmediateRetries"
FAILED_AFTER_DELAYED: Final = "Leveret.DelayedRetries"
"""The retry counts of a message in the error queue; NServiceBus removes its own two counters there."""

SEND: Final = "Send"
PUBLISH: Final = "Publish"
REPLY: Final = "Reply"

_OF_TRANSPORT: Final = frozenset({"CC", "BCC", "x-delivery-count", CONFIRMATION_ID, NON_PERSISTENT})
_OF_FAILURE: Final = frozenset(
    {
        FAILED_QUEUE,
        TIME_OF_FAILURE,
        PROCESSING_ENDPOINT,
        PROCESSING_MACHINE,
        FAILED_AFTER_IMMEDIATE,
        FAILED_AFTER_DELAYED,
        DELAYED_RETRIES,
        DELAYED_RETRIES_AT,
        IMMEDIATE_RETRIES,
    }
)


def is_of_transport(name: str) -> bool:
    """Whether a header belongs to one transport of the message, so that it must be removed when that is sent on.

    CC, for instance, would send copies again.
    """
    return name in _OF_TRANSPORT


def is_of_failure(name: str) -> bool:
    """Whether a header describes retries or a failure, so that it must be removed when the message starts anew."""
    return name in _OF_FAILURE or name.startswith(EXCEPTION)
