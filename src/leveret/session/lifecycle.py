"""The states of a connection and of a channel, as tables.

A client sends its protocol header, logs in, agrees on limits, opens a virtual host, works, and either side closes the
connection (AMQP 0-9-1, sections 2.2.4 and 4.2.1). A channel is opened, used, and closed by either side; after the
broker closed it, everything but the client's close-ok is dropped unread. What a table does not list is a violation.

After its close-ok the broker leaves closing the socket to the client and drops further input (as RabbitMQ does): a
client whose channels write concurrently may send frames behind its own connection.close, and must not fail for it.
"""

from __future__ import annotations

from typing import Final

from leveret.wire import grammar

# connection states
HEADER: Final = 0
STARTING: Final = 1
TUNING: Final = 2
OPENING: Final = 3
RUNNING: Final = 4
CLOSING: Final = 5
DRAINING: Final = 6
CLOSED: Final = 7
# RabbitMQ's names of the states
NAMES: Final = ("waiting for header", "starting", "tuning", "opening", "running", "closing", "closed", "closed")

# (state, method) -> next state
CONNECTION: Final[dict[tuple[int, int], int]] = {
    (STARTING, grammar.CONNECTION_START_OK.key): TUNING,
    (TUNING, grammar.CONNECTION_TUNE_OK.key): OPENING,
    (OPENING, grammar.CONNECTION_OPEN.key): RUNNING,
    (RUNNING, grammar.CONNECTION_UPDATE_SECRET.key): RUNNING,
    (STARTING, grammar.CONNECTION_CLOSE.key): DRAINING,
    (TUNING, grammar.CONNECTION_CLOSE.key): DRAINING,
    (OPENING, grammar.CONNECTION_CLOSE.key): DRAINING,
    (RUNNING, grammar.CONNECTION_CLOSE.key): DRAINING,
    (CLOSING, grammar.CONNECTION_CLOSE.key): DRAINING,
    (CLOSING, grammar.CONNECTION_CLOSE_OK.key): CLOSED,
}

# channel states; an unused channel number has none
OPEN: Final = 0
CLOSE_SENT: Final = 1
