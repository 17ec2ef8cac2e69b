"""The reference of all HTTP paths, from the table that serves them."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.admin import rules
from leveret.admin.paths.routes import API, PAGES
from leveret.admin.route import PathRoute

INTRO = """# HTTP paths

All paths of the admin port, from the table that serves them. What they mean, and where they are not as RabbitMQ's:
[the HTTP API](http-api.md). Names in a path are percent-encoded: the virtual host `/` is `%2F`.
"""

WHO = {
    rules.management: "any user with a tag",
    rules.administrator: "administrators",
    rules.monitor: "monitors, administrators",
    rules.vhost: "who may enter the virtual host",
    rules.visible_vhost: "who may enter the virtual host, monitors",
    rules.policymaker: "policymakers of the virtual host",
    rules.any_policymaker: "policymakers",
    rules.own_user: "the user, monitors",
    rules.owner: "the connection's user, monitors; administrators may close",
}


def text() -> str:
    return "\n".join([INTRO, "| path | verbs | for whom | who may change |", "|---|---|---|---|", *_rows()])


def _rows() -> Iterator[str]:
    for prefix, routes in (("", PAGES), ("/api", API)):
        for route in sorted(routes, key=lambda each: each.path):
            verbs = " ".join(verb for verb in route.methods if verb not in ("HEAD", "OPTIONS"))
            yield f"| `{prefix}{route.path}` | {verbs} | {_who(route)} | {_changer(route)} |"


def _who(route: PathRoute) -> str:
    return "anybody" if route.open is not None else _rule(route.may)


def _changer(route: PathRoute) -> str:
    return _rule(route.may_change) if route.may_change is not None else ""


def _rule(rule: rules.Rule) -> str:
    """Describe a rule in words; a KeyError here means that the table above lacks the rule."""
    return WHO[rule]
