"""Queries that list objects, with the filter, order, paging and columns of RabbitMQ's HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from leveret.broker.vhost import VHost
from leveret.control.command import Query
from leveret.control.node import BrokerNode
from leveret.control.pattern import name_filter
from leveret.control.refusal import Refused, bad_request
from leveret.control.sliced import Sliced, Steps, choose, sort
from leveret.control.views.view import View, encode

PAGE_OUT_OF_RANGE: Final = "page_out_of_range"
PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 500


class Listing(Query):
    """A query that lists objects. A column is a dotted path."""

    vhost: str | None = None  # only objects in this virtual host
    vhosts: tuple[str, ...] | None = None  # only objects in these virtual hosts
    page: int | None = None  # from 1 on, None = everything as an array
    page_size: int | None = None
    name: str | None = None  # see leveret.control.pattern
    use_regex: bool = False
    sort: str | None = None  # a column
    sort_reverse: bool = False
    columns: tuple[str, ...] = ()  # the wanted columns, none = all

    def run(self, node: BrokerNode) -> object:
        if self.page is not None and (self.page < 1 or not 1 <= self._size() <= PAGE_SIZE_MAX):
            size = "undefined" if self.page_size is None else self.page_size
            reason = f"Invalid pagination parameters: page number {self.page}, page size {size}"
            raise Refused("invalid_pagination_parameters", reason)
        wanted = name_filter(self.name, self.use_regex) if self.name else None
        return Sliced(self._steps(node, wanted))

    # -- for each kind of object ---------------------------------------------------------------------------------------

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        """Return all objects of the requested virtual hosts in their default order."""
        raise NotImplementedError

    def name_of(self, item: Any) -> str:
        """Return the text that the name filter is applied to."""
        raise NotImplementedError

    def view(self, node: BrokerNode, item: Any) -> View | None:
        """Return the view of an object, None if it has gone meanwhile."""
        raise NotImplementedError

    def look(self, node: BrokerNode, item: Any) -> Steps[View | None]:
        """The same, where it takes long."""
        yield
        return self.view(node, item)

    def quick_key(self, column: str) -> Callable[[Any], Any] | None:
        """Return a function for the value of a column if no view is needed for it, else None."""
        return None

    # -- for all -------------------------------------------------------------------------------------------------------

    def hosts(self, node: BrokerNode) -> list[VHost]:
        """Return the requested virtual hosts by name. Raises Refused if `vhost` does not exist."""
        vhosts = node.broker.vhosts
        if self.vhost is not None:
            if self.vhost not in vhosts:
                raise Refused("not_found", f"no virtual host '{self.vhost}'")
            names = [self.vhost] if self.vhosts is None or self.vhost in self.vhosts else []
        else:
            names = sorted(vhosts if self.vhosts is None else set(self.vhosts) & set(vhosts))
        return [vhosts[name] for name in names]

    def is_asked_for(self, vhost: VHost) -> bool:
        """Return whether objects in this virtual host are requested."""
        return (self.vhost is None or vhost.name == self.vhost) and (self.vhosts is None or vhost.name in self.vhosts)

    def _size(self) -> int:
        return PAGE_SIZE_DEFAULT if self.page_size is None else self.page_size

    def _steps(self, node: BrokerNode, wanted: Callable[[str], bool] | None) -> Steps[object]:
        found = yield from self.found(node)
        total = len(found)
        if wanted is not None:
            found = yield from choose(found, lambda item: wanted(self.name_of(item)))
        if self.sort:
            found = yield from self._sorted(node, found, self.sort)
        elif self.sort_reverse:
            found = found[::-1]
        filtered = len(found)
        if self.page is not None:
            first = (self.page - 1) * self._size()
            if first >= filtered and self.page > 1:
                reason = f"Page out of range, page: {self.page} page size: {self._size()}, len: {filtered}"
                raise Refused(PAGE_OUT_OF_RANGE, reason)
            found = found[first : first + self._size()]
        if self.page is None:
            return self._encoded(node, found)  # many: each is made when it is sent
        items = []
        for item in self._encoded(node, found):
            if item is not None:
                items.append(item)
            yield
        return {
            "filtered_count": filtered,
            "item_count": len(items),
            "items": items,
            "page": self.page,
            "page_count": -(-filtered // self._size()),
            "page_size": self._size(),
            "total_count": total,
        }

    def _sorted(self, node: BrokerNode, found: list[Any], column: str) -> Steps[list[Any]]:
        quick = self.quick_key(column)
        if quick is not None:
            return (yield from sort(found, lambda item: _rank(quick(item)), self.sort_reverse))
        pairs: list[tuple[Any, Any]] = []
        for item in found:
            view = yield from self.look(node, item)
            pairs.append((_rank(_at(view, column.split("."))), item))
        pairs = yield from sort(pairs, lambda pair: pair[0], self.sort_reverse)
        return [item for _, item in pairs]

    def _encoded(self, node: BrokerNode, found: list[Any]) -> Iterator[msgspec.Raw | None]:
        """Yield items as JSON; None is a pause."""
        paths = [column.split(".") for column in self.columns]
        for item in found:
            view = yield from self.look(node, item)
            if view is not None:
                yield encode(only(view, paths) if paths else view)


def only(view: View, paths: list[list[str]]) -> View:
    """Return the parts of a view at these paths."""
    picked: View = {}
    for path in paths:
        source: Any = view
        target: Any = picked
        for step in path[:-1]:
            source = source.get(step) if isinstance(source, dict) else None
            if not isinstance(source, dict):
                break
            target = target.setdefault(step, {})
        if isinstance(source, dict) and path[-1] in source and isinstance(target, dict):
            target[path[-1]] = source[path[-1]]
    return picked


def _at(view: Any, path: list[str]) -> Any:
    """Return the value at this path, None if it does not exist."""
    for step in path:
        view = view.get(step) if isinstance(view, dict) else None
    return view


def _rank(value: Any) -> tuple[int, Any]:
    """Return the sort key: missing values first, then numbers, then everything else as text."""
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    return (2, value if isinstance(value, str) else str(value))


def required(value: Any, what: str) -> Any:
    """Return the value. Raises Refused (bad_request) if it is None."""
    if value is None:
        raise bad_request(f"{what} is missing")
    return value
