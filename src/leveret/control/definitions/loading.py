"""A definitions file at the start of a broker (RabbitMQ's load_definitions)."""

from __future__ import annotations

import os

import msgspec

from leveret.broker.broker import Broker
from leveret.control.definitions.document import Document
from leveret.control.definitions.importing import Import, drop_defaults
from leveret.control.refusal import bad_request


def load(broker: Broker, path: str | os.PathLike[str], now_us: int) -> list[str]:
    """Import a file into a broker that does not serve yet; returns what was passed over. Refused; OSError.

    A new broker has no user and no virtual host then but those of the file, as in RabbitMQ: nobody gets in as guest
    who was not meant to.
    """
    try:
        with open(path, "rb") as file:
            document = msgspec.json.decode(file.read(), type=Document)
    except msgspec.MsgspecError as error:
        raise bad_request(str(error)) from None
    plan = Import(broker, document).check()
    if broker.is_new:
        drop_defaults(broker, document)
    return plan.apply(now_us)
