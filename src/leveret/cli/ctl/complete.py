"""Shell completion of names, which are requested from the running broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leveret.cli.data_dir import default_data_dir
from leveret.control.calls.blocking import ControlClient
from leveret.control.refusal import Refused

PATIENCE_S: Final = 1.0
NAMES_MAX: Final = 1000

# noun -> (command, whether it takes a virtual host, the field with the name)
COMMANDS: Final = {
    "users": ("list_users", False, "name"),
    "vhosts": ("list_vhosts", False, "name"),
    "queues": ("list_queues", True, "name"),
    "exchanges": ("list_exchanges", True, "name"),
    "connections": ("list_connections", False, "name"),
    "policies": ("list_policies", True, "name"),
    "links": ("federation_status", False, "id"),
}


def names_of(noun: str, params: Mapping[str, Any]) -> list[str]:
    """Return the existing names; empty if no broker runs, since completion must not print errors."""
    command, takes_vhost, field = COMMANDS[noun]
    fields: dict[str, object] = {"vhost": params.get("vhost") or "/"} if takes_vhost else {}
    try:
        with ControlClient(params.get("data_dir") or default_data_dir(), timeout_s=PATIENCE_S) as control:
            return [str(item[field]) for item in control.call(command, **fields)[:NAMES_MAX]]
    except (OSError, Refused):
        return []
