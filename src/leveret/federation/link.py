"""A link: copies messages that are published to an upstream exchange to a federated exchange, until it is removed.

The literal table _NEXT defines its states. An attempt (attempt.py) is one connection; the link makes one after the
other, with growing waits, and keeps what must be known from one to the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from leveret.broker.broker import Broker
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.storage.definitions import LINK, Definition
from leveret.broker.vhost import VHost
from leveret.federation.attempt import Attempt
from leveret.federation.bindings import Group, Grouped
from leveret.federation.environment import Environment, ScheduledCall
from leveret.federation.memory import Memory
from leveret.federation.plan import LinkPlan
from leveret.federation.status import ERROR, PAUSED, REFUSED, RUNNING, STARTING, LinkStatus
from leveret.federation.upstream import NEVER, UpstreamAddress
from leveret.wire.errors import quoted

logger: Final = logging.getLogger("leveret.federation")

FIRST_WAIT_S: Final = 0.1
CLEANINGS_MAX: Final = 3
"""How many times cleaning up an upstream is tried: it may be gone for good."""
STEADY_US: Final = 60_000_000
"""After running for this long a link may repeat earlier warnings."""
# how often a link may repeat the same warning while it goes on
SELDOM_US: Final = 600_000_000
# how many warnings are remembered, so that they are not repeated too often
TEXTS_MAX: Final = 64

IDLE: Final = "idle"
TRYING: Final = "trying"
GOING: Final = "going"
WAITING: Final = "waiting"
RESTING: Final = "paused"
HOPELESS: Final = "hopeless"
YIELDING: Final = "yielding"
CLEANING: Final = "cleaning up"
CLEANING_LATER: Final = "cleaning up later"
OVER: Final = "over"


class Link:
    """One link: carries out its plan by attempts, one after the other.

    grouped: the bindings of the exchange. rival: returns the name of the upstream of another link that uses, or tries
    to use, the same upstream queue, or "". on_over: called when a removed link has cleaned up.
    """

    def __init__(
        self, plan: LinkPlan, vhost: VHost, exchange: Exchange, grouped: Grouped, broker: Broker,
        environment: Environment, rival: Callable[[Link], str], on_over: Callable[[Link], None],
    ) -> None:  # fmt: skip
        self.plan = plan
        self.exchange = exchange
        self.state = IDLE
        record = broker.definitions.get(LINK, plan.id) or {}
        suffix = record.get("suffix")
        self.memory = Memory(suffix if isinstance(suffix, str) else "")
        self.is_paused = record.get("paused") is True
        self.is_clean = False  # nothing of it is left on the upstream
        self._vhost = vhost
        self._grouped = grouped
        self._broker = broker
        self._environment = environment
        self._rival = rival
        self._on_over = on_over
        self._attempt: Attempt | None = None
        self._alarm: ScheduledCall | None = None
        self._place: UpstreamAddress | None = None
        self._failures = 0
        self._cleanings = 0
        self._error = ""
        self._has_dead_replies = False
        self._since_us = environment.now_us()
        self._reconnects = -1
        self._counts = [0, 0, 0, 0]  # messages, looped, known and rejected, of the attempts before this one
        self._said: dict[str, int] = {}  # warnings, and when each was last logged
        self._last = ""

    # -- events ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the link, unless an operator has paused it, perhaps in an earlier epoch."""
        self._on("pause" if self.is_paused else "start")

    def pause(self) -> None:
        """Disconnect until `resume`, also over restarts of the broker. Messages collect in the upstream queue."""
        self.is_paused = True
        self._remember()
        self._on("pause")

    def resume(self) -> None:
        """Connect again after `pause`."""
        self.is_paused = False
        self._remember()
        self._on("resume")

    def restart(self) -> None:
        """Disconnect, and connect again at once; nothing is lost."""
        self._on("restart")

    def change(self, plan: LinkPlan) -> None:
        """Change the link's plan; the upstream queue stays the same."""
        self.plan = plan
        self._say(logging.INFO, "its settings have changed")
        self._on("change")

    def remove(self) -> None:
        """Delete what is on the upstream, unless the settings say never; then end."""
        self._broker.definitions.remove(LINK, self.plan.id)
        self._on("stop" if self.plan.upstream.resource_cleanup_mode == NEVER else "remove")

    def stop(self) -> None:
        """Disconnect, leaving everything on the upstream as it is."""
        self._on("stop")

    def changed(self, group: Group, is_bound: bool) -> None:
        """Note that a group of bindings came or went."""
        if self._attempt is not None:
            self._attempt.changed(group, is_bound)

    def ready(self) -> None:
        """The attempt has succeeded: the link runs."""
        self._on("ready")

    def ended(self, reason: str, is_done: bool) -> None:
        """The attempt has ended."""
        attempt = self._attempt
        assert attempt is not None
        self._leave()
        self._error = reason
        self._on("cleaned" if is_done else "ended")

    def dead_reply(self, name: str) -> None:
        """Log, once, that a message expects a direct reply, which cannot cross links."""
        if not self._has_dead_replies:
            self._has_dead_replies = True
            text = f"a message has the reply-to name {quoted(name)}: direct reply-to"
            self._say(
                logging.WARNING,
                f"{text} does not work across federation links, so replies to it are lost (logged once per link)",
            )

    def swapped(self) -> None:
        """Remember that the other internal exchange is the current one."""
        self._remember()

    def _on(self, event: str) -> None:
        handler = _NEXT.get((self.state, event)) or _NEXT.get(("any", event))
        if handler is not None and self.state != OVER:
            handler(self)

    # -- actions -----------------------------------------------------------------------------------------------------

    def _enter(self, state: str) -> None:
        """Set the state. The status follows from it; an error remains while another attempt is made."""
        before = self.status_word
        self.state = state
        if self.status_word != before:
            self._since_us = self._environment.now_us()

    def _begin(self) -> None:
        """Begin from the start, forgetting earlier failures."""
        self._leave()
        self._failures = 0
        self._error = self.plan.trouble()
        if self._error:
            self._enter(HOPELESS)
            self._say(logging.WARNING, f"the link can't start: {self._error}")
        else:
            self._dial()

    def _dial(self) -> None:
        rival = self._rival(self)
        if rival:  # two links would only take the queue from each other, again and again
            self._error = f"upstream {quoted(rival)} leads to the same queue and already has a link"
            self._enter(YIELDING)
            self._say(logging.INFO, self._error)
            self._later(self._wait_us())
            return
        if self.state == YIELDING:
            self._error = ""
        self._enter(TRYING)
        self._attempt_at(self._environment.random.choice(self.plan.places()))

    def _attempt_at(self, place: UpstreamAddress) -> None:
        self._place = place
        self._attempt = Attempt(
            self.plan, place, self._vhost, self.exchange, self._grouped, self._broker.positions, self.memory,
            self._environment, self,
        )  # fmt: skip

    def _run(self) -> None:
        self._error = ""
        self._reconnects += 1
        self._enter(GOING)
        self._say(logging.INFO, "running")
        if self.memory.warning:
            self._say(logging.WARNING, self.memory.warning)

    def _cut(self) -> None:
        """Wait after the end of a running attempt. One that ran only for a moment does not reset the failures."""
        ran_us = self._environment.now_us() - self._since_us
        if ran_us >= STEADY_US:
            self._said.clear()
        if ran_us >= self.plan.upstream.reconnect_delay_s * 1_000_000:
            self._failures = 0
        self._wait()

    def _wait(self) -> None:
        self._enter(WAITING)
        self._say(logging.WARNING, self._error)
        self._later(self._wait_us())

    def _wait_us(self) -> int:
        """The wait before the next attempt, in µs.

        Short at first, since most troubles are short; random, so that a broker's links do not all return to an upstream
        at once.
        """
        longest_s = self.plan.upstream.reconnect_delay_s
        wait_s: float = min(FIRST_WAIT_S * 2 ** min(self._failures, 32), longest_s)
        self._failures += 1
        return max(10_000, int(wait_s * self._environment.random.uniform(0.5, 1.0) * 1_000_000))

    def _rest(self) -> None:
        self._leave()
        self._error = ""
        self._enter(RESTING)
        self._say(logging.INFO, "paused")

    def _clean(self) -> None:
        """Clean up, on the present connection, or on a new one."""
        self._enter(CLEANING)
        if self._attempt is not None:
            self._attempt.clean()
        elif self.plan.trouble():
            self._end()
        else:
            self._clean_again()

    def _clean_again(self) -> None:
        self._enter(CLEANING)
        self._attempt_at(self._place or self._environment.random.choice(self.plan.places()))
        assert self._attempt is not None
        self._attempt.clean()

    def _clean_later(self) -> None:
        self._cleanings += 1
        if self._cleanings >= CLEANINGS_MAX:
            self._say(logging.WARNING, f"removed; its queue may be left on the upstream: {self._error}")
            self._end()
        else:
            self._enter(CLEANING_LATER)
            self._later(self._wait_us())

    def _cleaned(self) -> None:
        self._say(logging.INFO, "removed")
        self.is_clean = True
        self._end()

    def _end(self) -> None:
        self._leave()
        self._enter(OVER)
        self._on_over(self)

    def _leave(self) -> None:
        """End the present attempt, or the wait for the next one."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.close()
            self._counts = [sum(pair) for pair in zip(self._counts, attempt.counts(), strict=True)]

    def _later(self, delay_us: int) -> None:
        def due() -> None:
            self._alarm = None
            self._on("due")

        self._alarm = self._environment.later(delay_us, due)

    def _remember(self) -> None:
        """Store what must be known after a restart of the broker."""
        suffix = self.memory.suffix if self.memory.is_known else ""
        known: Definition = {"id": self.plan.id, "suffix": suffix, "paused": self.is_paused}
        self._broker.definitions.put(LINK, known)
        log = self._broker.log
        self.memory.batch = int(log.batch if log.size() else log.batch - 1)

    def _say(self, level: int, text: str) -> None:
        """Log a warning at most every SELDOM_US, other texts unless they were the last: the log ends with the state."""
        now_us = self._environment.now_us()
        last_us = self._said.get(text)
        is_news = last_us is None or now_us - last_us >= SELDOM_US if level > logging.INFO else self._last != text
        if is_news:
            if len(self._said) >= TEXTS_MAX:  # the texts may come from the other side
                self._said.clear()
            self._said[text] = now_us
            self._last = text
            plan = self.plan
            where = f"exchange {quoted(plan.exchange)} in vhost {quoted(plan.vhost)}"
            where = f"federation link {plan.id} ({where}, upstream {quoted(plan.upstream.name)})"
            logger.log(level, "%s: %s", where, text)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def status_word(self) -> str:
        """One of the constants of status.py."""
        word = _WORDS[self.state]
        return ERROR if word == STARTING and self._error else word

    def status(self) -> LinkStatus:
        """The link's current status."""
        plan, attempt, place = self.plan, self._attempt, self._place
        now = attempt.counts() if attempt is not None else (0, 0, 0, 0)
        messages, looped, known, rejected = (sum(pair) for pair in zip(self._counts, now, strict=True))
        return LinkStatus(
            id=plan.id, vhost=plan.vhost, exchange=plan.exchange, upstream=plan.upstream.name, policy=plan.policy,
            status=self.status_word, error=self._error, since_us=self._since_us,
            uri=place.shown if place is not None else "",
            upstream_exchange=plan.upstream.exchange, upstream_queue=self.memory.queue, max_hops=plan.upstream.max_hops,
            messages=messages, looped=looped, known=known, rejected=rejected,
            unacknowledged=attempt.unacknowledged if attempt is not None else 0,
            lag=self.memory.lag,
            bindings=len(self._grouped),
            unbound=attempt.unbound if attempt is not None else 0,
            reconnects=max(0, self._reconnects),
            connection=attempt.connection if attempt is not None else 0,
            warning=self.memory.warning,
        )  # fmt: skip


_WORDS: Final[dict[str, str]] = {
    IDLE: STARTING,
    TRYING: STARTING,
    GOING: RUNNING,
    WAITING: ERROR,
    RESTING: PAUSED,
    HOPELESS: ERROR,
    YIELDING: REFUSED,
    CLEANING: STARTING,
    CLEANING_LATER: STARTING,
    OVER: STARTING,
}
# (state, event) -> handler; an event that is not listed changes nothing
_NEXT: Final[dict[tuple[str, str], Callable[[Link], None]]] = {
    (IDLE, "start"): Link._begin,
    (IDLE, "pause"): Link._rest,
    (TRYING, "ready"): Link._run,
    (TRYING, "ended"): Link._wait,
    (TRYING, "pause"): Link._rest,
    (TRYING, "restart"): Link._begin,
    (TRYING, "change"): Link._begin,
    (TRYING, "remove"): Link._clean,
    (GOING, "ended"): Link._cut,
    (GOING, "pause"): Link._rest,
    (GOING, "restart"): Link._begin,
    (GOING, "change"): Link._begin,
    (GOING, "remove"): Link._clean,
    (WAITING, "due"): Link._dial,
    (WAITING, "pause"): Link._rest,
    (WAITING, "restart"): Link._begin,
    (WAITING, "change"): Link._begin,
    (WAITING, "remove"): Link._clean,
    (YIELDING, "due"): Link._dial,
    (YIELDING, "pause"): Link._rest,
    (YIELDING, "restart"): Link._begin,
    (YIELDING, "change"): Link._begin,
    (YIELDING, "remove"): Link._clean,
    (RESTING, "resume"): Link._begin,
    (RESTING, "remove"): Link._clean,
    (HOPELESS, "pause"): Link._rest,
    (HOPELESS, "restart"): Link._begin,
    (HOPELESS, "change"): Link._begin,
    (HOPELESS, "remove"): Link._end,
    (CLEANING, "ended"): Link._clean_later,
    (CLEANING, "cleaned"): Link._cleaned,
    (CLEANING_LATER, "due"): Link._clean_again,
    ("any", "stop"): Link._end,
}
