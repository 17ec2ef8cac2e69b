"""Federation within a server: it starts when the first upstream is defined, and costs nothing before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.storage.definitions import PARAMETER, POLICY, Definition, Key

if TYPE_CHECKING:
    from leveret.federation.federator import Federator
    from leveret.federation.status import LinkStatus
    from leveret.net.links import Links
    from leveret.net.server import Server

# prefix of the components of its parameters, and of the keys of its policies
_OURS: Final = "federation-upstream"


class Federation:
    """The links of a server, if it has any; their code is loaded when it is needed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._links: Links | None = None
        self._federator: Federator | None = None
        self._is_due = False

    def start(self) -> None:
        """Start the links, or wait for a definition that needs them. Called after recovery, before the broker serves.
        """
        definitions = self._server.broker.definitions
        kinds = (PARAMETER, POLICY)
        if any(_is_wanted(kind, definition) for kind in kinds for definition in definitions.all(kind)):
            self._begin()
        else:
            definitions.listeners.append(self._defined)

    def _defined(self, kind: str, key: Key, definition: Definition | None) -> None:
        if not self._is_due and definition is not None and _is_wanted(kind, definition):
            self._is_due = True
            self._server.loop.call_soon(self._begin)

    def _begin(self) -> None:
        from leveret.federation.federator import Federator
        from leveret.net.links import Links

        if self._defined in self._server.broker.definitions.listeners:
            self._server.broker.definitions.listeners.remove(self._defined)
        if self._server.stopping.is_set():
            return
        self._links = Links(self._server)
        self._federator = Federator(self._server.broker, self._links)
        self._federator.start()

    async def stop(self) -> None:
        """Stop the links, while the server's connections are still open. Upstream queues stay, and collect messages."""
        if self._links is None or self._federator is None:
            return
        await self._links.quiesce()
        self._federator.stop()
        await self._links.gone()

    # -- for operators -------------------------------------------------------------------------------------------------

    def statuses(self) -> list[LinkStatus]:
        """The status of each link, and which exchanges cannot be federated; by virtual host, exchange and upstream."""
        return [] if self._federator is None else self._federator.statuses()

    def restart(self, id: str) -> bool:
        """Connect a link anew. False if there is no such link."""
        return self._federator is not None and self._federator.restart(id)

    def pause(self, id: str) -> bool:
        """Disconnect a link; it stays so over restarts of the broker. False if there is no such link."""
        return self._federator is not None and self._federator.pause(id)

    def resume(self, id: str) -> bool:
        """Connect a paused link again. False if there is no such link."""
        return self._federator is not None and self._federator.resume(id)


def _is_wanted(kind: str, definition: Definition) -> bool:
    """Whether a definition concerns federation."""
    if kind == PARAMETER:
        return str(definition["component"]).startswith(_OURS)
    keys = definition.get("definition") if kind == POLICY else None
    return isinstance(keys, dict) and any(key.startswith(_OURS) for key in keys)
