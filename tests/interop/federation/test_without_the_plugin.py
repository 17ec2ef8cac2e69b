"""An upstream without support for federation: a RabbitMQ without the plugin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ...waiting import until
from .conftest import WITHOUT
from .node import LEVERET, RABBITMQ
from .site import Site

pytestmark = pytest.mark.needs("rabbitmq")


@pytest.mark.parametrize("kind", [RABBITMQ, LEVERET])
def test_a_fanout_will_do(site: Callable[..., Site], kind: str) -> None:
    """Hops are then checked downstream only (upstream_has_no_federation)."""
    up, down = site(f"{RABBITMQ} {WITHOUT}", "up"), site(kind, "down")
    for each in (up, down):
        each.exchange()
    inbox = down.inbox("k")
    down.federate(up, max_hops=2)
    down.running()
    up.bound("k")
    assert [each["type"] for each in up.exchanges("federation: ")] == ["fanout"]
    hop = {"cluster-name": "c", "vhost": "v"}
    own = {"cluster-name": down.node.cluster, "vhost": down.name}
    up.publish("k", "was here", headers={"x-received-from": [own]})
    up.publish("k", "too far", headers={"x-received-from": [hop, hop]})
    up.publish("k", "crosses", headers={"x-received-from": [hop]})
    inbox.bind("later", exchange="fed.x")
    up.bound("k", "later")
    up.publish("later", "crosses, too")
    inbox.expect("crosses", "crosses, too")
    down.unpolicy()
    until(lambda: not up.queues() and not up.exchanges("federation: "), lambda: f"{up.queues()}, {up.exchanges()}")
