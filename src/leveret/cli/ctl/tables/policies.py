"""Commands for policies, parameters, limits and definitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from leveret.cli.ctl.exits import DATA, UNAVAILABLE
from leveret.cli.ctl.files import definitions_from, definitions_to, imported
from leveret.cli.ctl.spec import AnswerTable, DynamicTable, Given, Option, Row, Spec, arguments, columns
from leveret.control.refusal import NOT_FOUND

POLICIES: Final = "Policies"
PARAMETERS: Final = "Parameters"
LIMITS: Final = "Limits"
DEFINITIONS: Final = "Definitions"


def _json(field: str) -> Callable[[Row], str]:
    """Return the value of a column with JSON as text."""
    return lambda row: json.dumps(row[field], separators=(",", ":"), ensure_ascii=False)


POLICY: Final = AnswerTable(
    (*columns("vhost", "name", "pattern", "apply-to", "priority"), *columns(definition=_json("definition"))),
    ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
)
POLICY_ARGUMENTS: Final = arguments("name pattern definition{}")
POLICY_OPTIONS: Final = (
    Option("priority", "priority", "int", "n", default=0),
    Option("apply-to", "apply_to", metavar="queues | exchanges | all", default="all"),
)
PARAMETER: Final = (*columns("component", "name"), *columns(value=_json("value")))
FORMAT: Final = Option("format", "", metavar="json")


def _limits_of(whose: str, empty: str) -> Callable[[Any, Given], str | DynamicTable]:
    """Return a function that shows the limits of one user or virtual host as JSON, or of all as a table."""
    table = AnswerTable((*columns(whose), *columns(limits=_json("value"))), (whose, "limits"))

    def show(answer: Any, given: Given) -> str | DynamicTable:
        if given["global"]:
            return DynamicTable(table, answer)
        return next((_json("value")(row) for row in answer if row[whose] == given[whose]), empty)

    return show


def _setting(word: str) -> str:
    what = '"{name}" for pattern "{pattern}" to "{definition}" with priority "{priority}"'
    return f'Setting {word} {what} for vhost "{{vhost}}" ...'


SPECS: Final = (
    Spec(
        "set_policy", POLICIES, "Set or change a policy.", POLICY_ARGUMENTS, POLICY_OPTIONS, takes_vhost=True,
        banner=_setting("policy"), exits={NOT_FOUND: DATA},
    ),
    Spec(
        "clear_policy", POLICIES, "Delete a policy.", arguments("name::policies"), takes_vhost=True,
        banner='Clearing policy "{name}" on vhost "{vhost}" ...',
    ),
    Spec(
        "list_policies", POLICIES, "List the policies of a virtual host.", takes_vhost=True,
        banner='Listing policies for vhost "{vhost}" ...', show=POLICY, exits={NOT_FOUND: DATA},
    ),
    Spec(
        "set_operator_policy", POLICIES, "Set an operator policy: limits for all policies.", POLICY_ARGUMENTS,
        POLICY_OPTIONS, takes_vhost=True, banner=_setting("operator policy override"), exits={NOT_FOUND: DATA},
    ),
    Spec(
        "clear_operator_policy", POLICIES, "Delete an operator policy.", arguments("name"), takes_vhost=True,
        banner='Clearing operator policy "{name}" on vhost "{vhost}" ...',
    ),
    Spec(
        "list_operator_policies", POLICIES, "List the operator policies of a virtual host.", takes_vhost=True,
        banner='Listing operator policy overrides for vhost "{vhost}" ...', show=POLICY, exits={NOT_FOUND: DATA},
    ),
    Spec(
        "set_parameter", PARAMETERS, "Set a runtime parameter of a component.",
        arguments("component_name:component name value{}"), takes_vhost=True,
        banner='Setting runtime parameter "{name}" for component "{component_name}" to "{value}" '
        'in vhost "{vhost}" ...',
        exits={NOT_FOUND: DATA},
    ),
    Spec(
        "clear_parameter", PARAMETERS, "Delete a runtime parameter.", arguments("component_name:component name"),
        takes_vhost=True,
        banner='Clearing runtime parameter "{name}" for component "{component_name}" on vhost "{vhost}" ...',
    ),
    Spec(
        "list_parameters", PARAMETERS, "List the runtime parameters of a virtual host.", takes_vhost=True,
        banner='Listing runtime parameters for vhost "{vhost}" ...', exits={NOT_FOUND: DATA},
        show=AnswerTable(PARAMETER, ("component", "name", "value")),
    ),
    Spec(
        "set_global_parameter", PARAMETERS, "Set a global runtime parameter.", arguments("name value{}"),
        banner='Setting global runtime parameter "{name}" to "{value}" ...',
    ),
    Spec(
        "clear_global_parameter", PARAMETERS, "Delete a global runtime parameter.", arguments("name"),
        banner='Clearing global runtime parameter "{name}" ...',
    ),
    Spec(
        "list_global_parameters", PARAMETERS, "List the global runtime parameters.",
        banner="Listing global runtime parameters ...", show=AnswerTable(PARAMETER[1:], ("name", "value")),
    ),
    Spec(
        "set_vhost_limits", LIMITS, "Set limits of a vhost: max-connections, max-queues.", arguments("definition{}"),
        takes_vhost=True, banner='Setting vhost limits to "{definition}" for vhost "{vhost}" ...',
    ),
    Spec(
        "clear_vhost_limits", LIMITS, "Remove the limits of a virtual host.", takes_vhost=True,
        banner='Clearing vhost "{vhost}" limits ...',
    ),
    Spec(
        "list_vhost_limits", LIMITS, "Show the limits of one or all virtual hosts.", (),
        (Option("global", "", "flag"),), takes_vhost=True, banner="Listing limits for {whose} ...",
        words=lambda given: {"whose": "all vhosts" if given["global"] else f'vhost "{given["vhost"]}"'},
        show=_limits_of("vhost", "\n"), exits={NOT_FOUND: DATA},
    ),
    Spec(
        "set_user_limits", LIMITS, "Set limits of a user: max-connections, max-channels.",
        arguments("username:user:users definition{}"),
        banner='Setting user limits to "{definition}" for user "{username}" ...', exits={NOT_FOUND: UNAVAILABLE},
    ),
    Spec(
        "clear_user_limits", LIMITS, "Remove one or all limits of a user.", arguments("username:user:users limit"),
        banner='Clearing {which} for user "{username}" ...',
        words=lambda given: {
            "which": "all limits" if given["limit"] == "all" else f'"{given["limit"]}" limit'
        },
        exits={NOT_FOUND: UNAVAILABLE},
    ),
    Spec(
        "list_user_limits", LIMITS, "Show the limits of one or all users.", (),
        (Option("global", "", "flag"), Option("user", "user", metavar="username", default="guest")),
        banner="Listing limits for {whose} ...",
        words=lambda given: {"whose": "all users" if given["global"] else f'user "{given["user"]}"'},
        show=_limits_of("user", "{}"), exits={NOT_FOUND: UNAVAILABLE},
    ),
    Spec(
        "export_definitions", DEFINITIONS, "Write users, virtual hosts, policies, queues … to a file; - is standard "
                                           "output.",
        arguments("file:"), (FORMAT,), banner='Exporting definitions in JSON to a file at "{file}" ...',
        show=definitions_to,
    ),
    Spec(
        "import_definitions", DEFINITIONS, "Read users, virtual hosts, policies, queues … from a file; - is "
                                           "standard input.",
        arguments("file:?"), (FORMAT, Option("skip-if-unchanged", "", "flag")),
        banner='Importing definitions in JSON from a file at "{file}" ...', fields=definitions_from,
        show=imported,
    ),
)  # fmt: skip
