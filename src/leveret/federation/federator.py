"""Decides which links there are, by policies and parameters (RabbitMQ, Federated Exchanges).

Changes are only noted at first; in a turn of its own, the wanted links are compared with the existing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from leveret.broker.access.pattern import Pattern
from leveret.broker.broker import Broker
from leveret.broker.exchange_types.exchange_arguments import EXCHANGE
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.policies import Effect
from leveret.broker.storage.definitions import GLOBAL_PARAMETER, PARAMETER, VHOST, Definition, Key
from leveret.broker.vhost import VHost
from leveret.broker.watcher import Watcher
from leveret.federation.bindings import Grouped
from leveret.federation.environment import Environment, ScheduledCall
from leveret.federation.link import GOING, TRYING, Link
from leveret.federation.names import UPSTREAM_KIND, link_id
from leveret.federation.plan import LinkPlan
from leveret.federation.status import REFUSED, LinkStatus
from leveret.federation.upstream import Upstream, upstream_of
from leveret.wire.table import Value

UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
UPSTREAM_PATTERN: Final = "federation-upstream-pattern"
ALL: Final = "all"
"""The name of the set of all upstreams, which always exists."""
INTERNAL: Final = "an internal exchange is not federated: clients cannot publish to it"
DEFAULT: Final = "the default exchange is not federated: it only routes to queues by name"

Place = tuple[str, str]  # (virtual host, exchange)


class Feed:
    """A federated exchange: its bindings, and its links by their ids."""

    def __init__(self, vhost: VHost, exchange: Exchange) -> None:
        self.vhost = vhost
        self.exchange = exchange
        self.grouped = Grouped(exchange.every())
        self.links: dict[str, Link] = {}


class Federator(Watcher):
    """The links of a broker. Call `start` when it has recovered."""

    def __init__(self, broker: Broker, environment: Environment) -> None:
        self._broker = broker
        self._environment = environment
        self._feeds: dict[Place, Feed] = {}
        self._leaving: list[Link] = []
        self._watches = 0  # how many feeds there have been
        self._changed: dict[Place, None] = {}
        self._is_all_changed = True
        self._alarm: ScheduledCall | None = None
        self._is_stopped = False
        self._began_us = environment.now_us()

    def start(self) -> None:
        """Watch for all changes from now on, and make the links that are wanted now."""
        self._broker.watch(self)
        self._broker.definitions.listeners.append(self._defined)
        self._wake()

    def stop(self) -> None:
        """Disconnect from all upstreams, leaving everything there as it is."""
        self._is_stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
        for link in [*self._links(), *self._leaving]:
            link.stop()

    # -- for operators -----------------------------------------------------------------------------------------------

    def statuses(self) -> list[LinkStatus]:
        """The status of all links, and of what a policy asks for but cannot be, by virtual host, exchange and upstream.
        """
        found = [link.status() for link in self._links()]
        found += self._refusals()
        return sorted(found, key=lambda each: (each.vhost, each.exchange, each.upstream, each.upstream_exchange))

    def restart(self, id: str) -> bool:
        """Connect a link anew. False if there is no such link."""
        return self._with(id, Link.restart)

    def pause(self, id: str) -> bool:
        """Disconnect a link until `resume`. False if there is no such link."""
        return self._with(id, Link.pause)

    def resume(self, id: str) -> bool:
        """Connect a paused link again. False if there is no such link."""
        return self._with(id, Link.resume)

    def _with(self, id: str, do: Callable[[Link], None]) -> bool:
        link = next((link for link in self._links() if link.plan.id == id), None)
        if link is not None:
            do(link)
        return link is not None

    def _links(self) -> Iterator[Link]:
        for feed in self._feeds.values():
            yield from feed.links.values()

    # -- events ------------------------------------------------------------------------------------------------------

    def exchange_changed(self, vhost: VHost, exchange: Exchange) -> None:
        """Note a change of an exchange that is, was or is to be federated; most are not."""
        place = (vhost.name, exchange.name)
        if _asks(exchange.effect) or place in self._feeds:
            self._changed[place] = None
            self._wake()

    def exchange_deleted(self, vhost: VHost, exchange: Exchange) -> None:
        """Note that a federated exchange was deleted, so its links go."""
        place = (vhost.name, exchange.name)
        if place in self._feeds:
            self._changed[place] = None
            self._wake()

    def bound(self, vhost: VHost, binding: Binding) -> None:
        """Tell the exchange's links about a binding, if it is the first of its group."""
        feed = self._feeds.get((vhost.name, binding.source.name))
        if feed is not None and feed.exchange is binding.source and feed.grouped.add(binding):
            for link in feed.links.values():
                link.changed((binding.key, binding.arguments), True)

    def unbound(self, vhost: VHost, binding: Binding) -> None:
        """Tell the exchange's links when the last binding of a group is gone."""
        feed = self._feeds.get((vhost.name, binding.source.name))
        if feed is not None and feed.exchange is binding.source and feed.grouped.remove(binding):
            for link in feed.links.values():
                link.changed((binding.key, binding.arguments), False)

    def _defined(self, kind: str, key: Key, definition: Definition | None) -> None:
        """Note changes of upstreams, virtual hosts and the cluster name.

        Policies are noticed when they take effect on an exchange.
        """
        is_ours = kind == PARAMETER and key[1] in (UPSTREAM, UPSTREAM_SET)
        if is_ours or kind == VHOST or (kind == GLOBAL_PARAMETER and key == ("cluster_name",)):
            self._is_all_changed = True
            self._wake()

    def _wake(self) -> None:
        if self._alarm is None and not self._is_stopped:
            self._alarm = self._environment.later(0, self._reconcile)

    # -- reconciling -------------------------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Add, change and remove links where something has changed."""
        self._alarm = None
        changed, self._changed = self._changed, {}
        if self._is_all_changed:
            self._is_all_changed = False
            changed = dict.fromkeys(self._feeds) | changed
            for vhost in self._broker.vhosts.values():
                asking = [each.name for each in vhost.exchanges.values() if _asks(each.effect)]
                changed |= dict.fromkeys((vhost.name, name) for name in asking)
        for place in changed:
            self._settle(place)

    def _settle(self, place: Place) -> None:
        """Reconcile one exchange, which may no longer exist."""
        vhost = self._broker.vhosts.get(place[0])
        exchange = vhost.exchanges.get(place[1]) if vhost is not None else None
        feed = self._feeds.get(place)
        if feed is not None and feed.exchange is not exchange:
            self._drop(place, feed)
            feed = None
        if vhost is None or exchange is None:
            return
        plans = [] if exchange.internal else self._plans(vhost, exchange)
        if feed is None and plans:
            feed = self._feeds[place] = Feed(vhost, exchange)
            self._watches += 1
            exchange.watch = self._watches
        if feed is not None:
            self._fit(feed, {plan.id: plan for plan in plans})
            if not feed.links and not plans:
                self._drop(place, feed)

    def _drop(self, place: Place, feed: Feed) -> None:
        feed.exchange.watch = 0
        self._fit(feed, {})
        del self._feeds[place]

    def _fit(self, feed: Feed, plans: dict[str, LinkPlan]) -> None:
        """Make the feed's links match the plans."""
        # if several links share a queue, the last one to go deletes it; it should be one that is connected
        for id, link in sorted(feed.links.items(), key=lambda item: item[1].state == GOING):
            plan = plans.get(id)
            if plan == link.plan:
                continue
            if plan is not None and _is_same_queue(plan, link.plan):
                link.change(plan)
                continue
            del feed.links[id]
            self._leave(link, [*plans.values(), *(other.plan for other in feed.links.values())])
        for id, plan in plans.items():
            if id not in feed.links and not any(_may_meet(plan, link.plan) for link in self._leaving):
                link = feed.links[id] = Link(
                    plan, feed.vhost, feed.exchange, feed.grouped, self._broker, self._environment, self._rival,
                    self._over,
                )  # fmt: skip
                link.start()

    def _leave(self, link: Link, others: list[LinkPlan]) -> None:
        """Remove a link with its queue, unless another link has the same queue, or is about to get it."""
        if any(_is_same_queue(link.plan, other) for other in others):
            link.stop()
        else:
            self._leaving.append(link)
            link.remove()

    def _rival(self, link: Link) -> str:
        """The name of the upstream whose link keeps this one from its queue, or ""."""
        feed = self._feeds.get((link.plan.vhost, link.plan.exchange))
        for other in feed.links.values() if feed is not None else ():
            if other is not link and other.state in (TRYING, GOING) and _is_same_queue(other.plan, link.plan):
                return other.plan.upstream.name
        return ""

    def _over(self, link: Link) -> None:
        """Handle the end of a removed link: a link that had to wait for it may start."""
        if link in self._leaving:
            self._leaving.remove(link)
            if link.is_clean and all(other.memory.key != link.memory.key for other in self._links()):
                self._broker.positions.forget(link.memory.key)
            self._is_all_changed = True
            self._wake()

    def _plans(self, vhost: VHost, exchange: Exchange) -> list[LinkPlan]:
        """The plans of the links that an exchange should have."""
        cluster, policy = self._broker.cluster_name.value, exchange.effect.policy
        plans: dict[str, LinkPlan] = {}
        for upstream in self._upstreams(vhost.name, exchange):
            id = link_id(vhost.name, exchange.name, upstream.name)
            if id in plans:  # a set may name an upstream several times, each time with another exchange
                id = link_id(vhost.name, exchange.name, f"{upstream.name}\0{upstream.exchange}")
            plans[id] = LinkPlan(id, cluster, vhost.name, exchange.name, policy, upstream)
        return list(plans.values())

    def _upstreams(self, vhost: str, exchange: Exchange) -> list[Upstream]:
        """The upstreams that the policy names, by one of the three keys; those that do not exist are skipped."""
        settings = exchange.effect.settings
        defined = self._parameters(vhost)
        wanted: list[dict[str, Value]] = []
        if UPSTREAM in settings:
            wanted = [{"upstream": settings[UPSTREAM]}]
        elif UPSTREAM_PATTERN in settings:
            pattern = Pattern(str(settings[UPSTREAM_PATTERN]))
            wanted = [{"upstream": name} for name in defined if pattern.matches(name)]
        elif settings.get(UPSTREAM_SET) == ALL:
            wanted = [{"upstream": name} for name in defined]
        elif UPSTREAM_SET in settings:
            parameter = self._broker.definitions.get(PARAMETER, vhost, UPSTREAM_SET, str(settings[UPSTREAM_SET]))
            members = parameter["value"] if parameter is not None else []
            if isinstance(members, list):
                wanted = [member for member in members if isinstance(member, dict)]
        found: dict[Upstream, None] = {}
        for member in wanted:
            name = str(member.get("upstream"))
            if name in defined:
                said = {key: value for key, value in member.items() if key != "upstream"}
                found[upstream_of(name, defined[name] | said, exchange.name)] = None
        return list(found)

    def _parameters(self, vhost: str) -> dict[str, dict[str, Value]]:
        """The upstreams of a virtual host, sorted by name."""
        found: dict[str, dict[str, Value]] = {}
        for parameter in self._broker.definitions.all(PARAMETER):
            value = parameter["value"]
            if parameter["vhost"] == vhost and parameter["component"] == UPSTREAM and isinstance(value, dict):
                found[str(parameter["name"])] = value
        return dict(sorted(found.items()))

    def _refusals(self) -> Iterator[LinkStatus]:
        """Exchanges that a policy would federate, but that cannot be federated."""
        for vhost in self._broker.vhosts.values():
            effect = vhost.policies.effect(EXCHANGE, "")
            if _asks(effect):
                yield self._refusal(vhost, "", effect, DEFAULT)
            for each in vhost.exchanges.values():
                if each.internal and each.kind != UPSTREAM_KIND and _asks(each.effect):
                    yield self._refusal(vhost, each.name, each.effect, INTERNAL)

    def _refusal(self, vhost: VHost, exchange: str, effect: Effect, reason: str) -> LinkStatus:
        return LinkStatus("", vhost.name, exchange, "", effect.policy, REFUSED, reason, self._began_us)


def _asks(effect: Effect) -> bool:
    """Whether a policy asks for federation."""
    settings = effect.settings
    return UPSTREAM in settings or UPSTREAM_SET in settings or UPSTREAM_PATTERN in settings


def _is_same_queue(one: LinkPlan, other: LinkPlan) -> bool:
    """Whether both plans have an upstream queue in common, for at least some of their URIs."""
    return bool(one.queues & other.queues)


def _may_meet(plan: LinkPlan, leaving: LinkPlan) -> bool:
    """Whether a link must not start before a leaving one has cleaned up."""
    is_same = (plan.vhost, plan.exchange) == (leaving.vhost, leaving.exchange)
    return is_same and (plan.id == leaving.id or _is_same_queue(plan, leaving))
