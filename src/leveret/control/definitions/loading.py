"""Definitions at the start of a broker: of a file (RabbitMQ's load_definitions), and of imports that were cut off."""

from __future__ import annotations

import os

import msgspec

from leveret.broker.broker import Broker
from leveret.control.definitions.document import Document
from leveret.control.definitions.importing import Import, drop_defaults
from leveret.control.refusal import Refused, bad_request


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


def finish(broker: Broker, now_us: int) -> list[str]:
    """Carry out to their ends the imports that the broker's end cut off; what there is to say of them."""
    from leveret.control.commands.definitions import ImportDefinitions

    told: list[str] = []
    for number, request in dict(broker.imports.begun).items():
        broker.imports.end(number)  # by the same batch as its changes
        command = msgspec.json.decode(request, type=ImportDefinitions)
        try:
            command.plan(broker).apply(now_us)
            told.append("an import of definitions that was cut off is carried out now")
        except Refused as error:
            told.append(f"an import of definitions that was cut off can't be carried out any more: {error}")
    return told
