"""Permissions of routes: the table "Permissions and tags" of RabbitMQ's management plugin.

A rule returns why the user may not use a route, "" if the user may. Which objects of which virtual hosts a user sees is
up to the lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from leveret.admin.call import ApiCall

Rule = Callable[[ApiCall], Awaitable[str]]

NOT_ADMINISTRATOR = "Not administrator user"
NOT_MONITOR = "Not monitor user"
NO_ACCESS_TO_VHOST = "User not authorised to access virtual host"
NO_ACCESS_TO_OBJECT = "User not authorised to access object"


async def management(call: ApiCall) -> str:
    """Allow all users with a tag."""
    return ""


async def administrator(call: ApiCall) -> str:
    return "" if call.user.is_administrator else NOT_ADMINISTRATOR


async def monitor(call: ApiCall) -> str:
    return "" if call.user.is_monitor else NOT_MONITOR


async def vhost(call: ApiCall) -> str:
    """Allow users with a permission in the virtual host; if it does not exist, everybody may learn that."""
    return "" if call.user.is_administrator or await _enters(call) else NO_ACCESS_TO_VHOST


async def visible_vhost(call: ApiCall) -> str:
    """Allow users with a permission in the virtual host, and monitors."""
    return "" if call.user.is_monitor or await _enters(call) else NO_ACCESS_TO_VHOST


async def policymaker(call: ApiCall) -> str:
    """Allow policymakers in their virtual hosts."""
    may = call.user.is_administrator or (call.user.is_policymaker and await _enters(call))
    return "" if may else NO_ACCESS_TO_OBJECT


async def any_policymaker(call: ApiCall) -> str:
    return "" if call.user.is_policymaker else NO_ACCESS_TO_OBJECT


async def own_user(call: ApiCall) -> str:
    """Allow the user itself, and monitors: nobody else may learn whether a user exists."""
    return "" if call.user.is_monitor or call.values["user"] == call.user.name else NO_ACCESS_TO_OBJECT


async def owner(call: ApiCall) -> str:
    """Allow users for their own connections and channels.

    Monitors may see, and administrators may close, those of all users; only they may use paths for several objects.
    """
    user = call.user
    above = user.is_administrator if call.request.method == "DELETE" else user.is_monitor
    return "" if above or (call.found is not None and call.found.get("user") == user.name) else NO_ACCESS_TO_OBJECT


async def _enters(call: ApiCall) -> bool:
    if call.vhost is None or call.vhost in await call.user.vhosts():
        return True
    return "vhost" in call.values and not await call.vhost_exists()
