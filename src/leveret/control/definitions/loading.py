"""Definitions at the start of a broker: from a file (RabbitMQ's load_definitions), and from interrupted imports."""

from __future__ import annotations

import os

import msgspec

from leveret.broker.broker import Broker
from leveret.control.definitions.document import Document
from leveret.control.definitions.importing import Import, drop_defaults
from leveret.control.refusal import Refused, bad_request


def load(broker: Broker, path: str | os.PathLike[str], now_us: int) -> list[str]:
    """Import a file into a broker that does not serve yet; return warnings. Raises Refused and OSError.

    A new broker then has only the users and virtual hosts of the file, as in RabbitMQ, so that the default user guest
    cannot log in unintentionally.
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
    """Complete the imports that the end of the broker interrupted; return log messages."""
    from leveret.control.commands.definitions import ImportDefinitions

    told: list[str] = []
    for number, request in dict(broker.imports.begun).items():
        broker.imports.end(number)  # recorded in the same batch as its changes
        command = msgspec.json.decode(request, type=ImportDefinitions)
        try:
            command.plan(broker).apply(now_us)
            told.append("completing an import of definitions that was interrupted")
        except Refused as error:
            told.append(f"an interrupted import of definitions cannot be completed: {error}")
    return told
