"""Data loss: messages that a query should have read are gone; an error or a warning, by option failOnDataLoss."""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger("leveret.spark")


class DataLoss(Exception):
    """Messages that the query had not read are gone; the text says which, and what to do."""


def lost(what: str, is_failure: bool) -> None:
    """Raise ``DataLoss`` if that is a failure (option failOnDataLoss), else log a warning."""
    if is_failure:
        raise DataLoss(f"{what}; to continue with the remaining messages, set option failOnDataLoss to false")
    log.warning("%s; the query continues with the remaining messages, since failOnDataLoss is false", what)


def counted(count: int) -> str:
    """Format a count, like ``1 message`` or ``2,000 messages``."""
    return f"{count:,} {'message' if count == 1 else 'messages'}"
