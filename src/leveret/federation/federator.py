"""Which links there are to be, by policies and parameters, and which there are (RabbitMQ, Federated Exchanges).

Whatever changes is noted only; in a turn of its own the links that are wanted are compared with those there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from leveret.broker.binding import Binding
from leveret.broker.broker import Broker
from leveret.broker.definitions import GLOBAL_PARAMETER, PARAMETER, VHOST, Definition, Key
from leveret.broker.exchange import Exchange
from leveret.broker.pattern import Pattern
from leveret.broker.policies import EXCHANGE, Effect
from leveret.broker.vhost import VHost
from leveret.broker.watcher import Watcher
from leveret.federation.bindings import Grouped
from leveret.federation.environment import Alarm, Environment
from leveret.federation.link import GOING, TRYING, Link
from leveret.federation.names import UPSTREAM_KIND, link_id
from leveret.federation.plan import Plan
from leveret.federation.status import REFUSED, LinkStatus
from leveret.federation.upstream import Upstream, upstream_of
from leveret.wire.table import Value

UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
UPSTREAM_PATTERN: Final = "federation-upstream-pattern"
ALL: Final = "all"
"""The set of all upstreams, which is always there."""
INTERNAL: Final = "an internal exchange is not federated: clients cannot publish to it"
DEFAULT: Final = "the default exchange is not federated: it only routes to queues by name"

Place = tuple[str, str]  # virtual host, exchange


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
        self._watches = 0  # the number of the last feed
        self._changed: dict[Place, None] = {}
        self._is_all_changed = True
        self._alarm: Alarm | None = None
        self._is_stopped = False
        self._began_us = environment.now_us()

    def start(self) -> None:
        """Hear of all changes from now on, and begin with what there is."""
        self._broker.watch(self)
        self._broker.definitions.listeners.append(self._defined)
        self._wake()

    def stop(self) -> None:
        """Leave all upstreams, and all that is there as it is."""
        self._is_stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
        for link in [*self._links(), *self._leaving]:
            link.stop()

    # -- what operators ask for --------------------------------------------------------------------------------------

    def statuses(self) -> list[LinkStatus]:
        """How all links stand, by virtual host, exchange and upstream; and what a policy asks for that can't be."""
        found = [link.status() for link in self._links()]
        found += self._refusals()
        return sorted(found, key=lambda each: (each.vhost, each.exchange, each.upstream, each.upstream_exchange))

    def restart(self, id: str) -> bool:
        """Connect anew. False if there is no such link; so do the next two say."""
        return self._with(id, Link.restart)

    def pause(self, id: str) -> bool:
        """Leave the upstream alone until `resume`."""
        return self._with(id, Link.pause)

    def resume(self, id: str) -> bool:
        """Go on."""
        return self._with(id, Link.resume)

    def _with(self, id: str, do: Callable[[Link], None]) -> bool:
        link = next((link for link in self._links() if link.plan.id == id), None)
        if link is not None:
            do(link)
        return link is not None

    def _links(self) -> Iterator[Link]:
        for feed in self._feeds.values():
            yield from feed.links.values()

    # -- what is heard -----------------------------------------------------------------------------------------------

    def exchange_changed(self, vhost: VHost, exchange: Exchange) -> None:
        """Of the many exchanges few are federated, or were."""
        place = (vhost.name, exchange.name)
        if _asks(exchange.effect) or place in self._feeds:
            self._changed[place] = None
            self._wake()

    def exchange_deleted(self, vhost: VHost, exchange: Exchange) -> None:
        """Its links go."""
        place = (vhost.name, exchange.name)
        if place in self._feeds:
            self._changed[place] = None
            self._wake()

    def bound(self, vhost: VHost, binding: Binding) -> None:
        """Its links tell their upstreams, if they have not this binding already."""
        feed = self._feeds.get((vhost.name, binding.source.name))
        if feed is not None and feed.exchange is binding.source and feed.grouped.add(binding):
            for link in feed.links.values():
                link.changed((binding.key, binding.arguments), True)

    def unbound(self, vhost: VHost, binding: Binding) -> None:
        """The same when the last one is gone."""
        feed = self._feeds.get((vhost.name, binding.source.name))
        if feed is not None and feed.exchange is binding.source and feed.grouped.remove(binding):
            for link in feed.links.values():
                link.changed((binding.key, binding.arguments), False)

    def _defined(self, kind: str, key: Key, definition: Definition | None) -> None:
        """Policies are heard of when they take effect on an exchange; but the default exchange is none."""
        is_ours = kind == PARAMETER and key[1] in (UPSTREAM, UPSTREAM_SET)
        if is_ours or kind == VHOST or (kind == GLOBAL_PARAMETER and key == ("cluster_name",)):
            self._is_all_changed = True
            self._wake()

    def _wake(self) -> None:
        if self._alarm is None and not self._is_stopped:
            self._alarm = self._environment.later(0, self._reconcile)

    # -- what is wanted ----------------------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Links come, go and change, where something has changed."""
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
        """One exchange, which need not be there any more."""
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

    def _fit(self, feed: Feed, plans: dict[str, Plan]) -> None:
        """What is there becomes what is wanted."""
        # where several have one queue, the last one to go deletes it: let it be the one that can
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

    def _leave(self, link: Link, others: list[Plan]) -> None:
        """It goes, with its queue, unless another one has the same queue, or is about to come and have it."""
        if any(_is_same_queue(link.plan, other) for other in others):
            link.stop()
        else:
            self._leaving.append(link)
            link.remove()

    def _rival(self, link: Link) -> str:
        """The upstream whose link keeps this one from its queue."""
        feed = self._feeds.get((link.plan.vhost, link.plan.exchange))
        for other in feed.links.values() if feed is not None else ():
            if other is not link and other.state in (TRYING, GOING) and _is_same_queue(other.plan, link.plan):
                return other.plan.upstream.name
        return ""

    def _over(self, link: Link) -> None:
        """It is gone: another one may come that had to wait."""
        if link in self._leaving:
            self._leaving.remove(link)
            if link.is_clean and all(other.memory.key != link.memory.key for other in self._links()):
                self._broker.positions.forget(link.memory.key)
            self._is_all_changed = True
            self._wake()

    def _plans(self, vhost: VHost, exchange: Exchange) -> list[Plan]:
        """The links of an exchange, as wanted."""
        cluster, policy = self._broker.cluster_name.value, exchange.effect.policy
        plans: dict[str, Plan] = {}
        for upstream in self._upstreams(vhost.name, exchange):
            id = link_id(vhost.name, exchange.name, upstream.name)
            if id in plans:  # a set may name an upstream more than once, each time with another exchange
                id = link_id(vhost.name, exchange.name, f"{upstream.name}\0{upstream.exchange}")
            plans[id] = Plan(id, cluster, vhost.name, exchange.name, policy, upstream)
        return list(plans.values())

    def _upstreams(self, vhost: str, exchange: Exchange) -> list[Upstream]:
        """By the policy, which has one of the three keys; what it names need not exist."""
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
        """The upstreams of a virtual host, in the order of their names."""
        found: dict[str, dict[str, Value]] = {}
        for parameter in self._broker.definitions.all(PARAMETER):
            value = parameter["value"]
            if parameter["vhost"] == vhost and parameter["component"] == UPSTREAM and isinstance(value, dict):
                found[str(parameter["name"])] = value
        return dict(sorted(found.items()))

    def _refusals(self) -> Iterator[LinkStatus]:
        """Exchanges that a policy means and that can't be federated."""
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
    """Whether a policy wants federation."""
    settings = effect.settings
    return UPSTREAM in settings or UPSTREAM_SET in settings or UPSTREAM_PATTERN in settings


def _is_same_queue(one: Plan, other: Plan) -> bool:
    """Whether the upstream queue of the one is that of the other, for some of their URIs at least."""
    return bool(one.queues & other.queues)


def _may_meet(plan: Plan, leaving: Plan) -> bool:
    """Whether a link must not come before another one has cleaned up."""
    is_same = (plan.vhost, plan.exchange) == (leaving.vhost, leaving.exchange)
    return is_same and (plan.id == leaving.id or _is_same_queue(plan, leaving))
