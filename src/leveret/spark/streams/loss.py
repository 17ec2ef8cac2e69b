"""Messages that a query should have read and that are no longer there: an error, or a line in the log."""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger("leveret.spark")


class DataLoss(Exception):
    """Messages that the query had not read are gone; the text says which, and what may be done."""


def lost(what: str, is_failure: bool) -> None:
    """Raise ``DataLoss`` where the option failOnDataLoss says so, else log it: the query goes on from what is there."""
    if is_failure:
        raise DataLoss(f"{what}; to continue with the remaining messages, set option failOnDataLoss to false")
    log.warning("%s; the query continues with the remaining messages, since failOnDataLoss is false", what)


def counted(count: int) -> str:
    """``1 message``, ``2,000 messages``."""
    return f"{count:,} {'message' if count == 1 else 'messages'}"
