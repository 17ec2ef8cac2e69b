"""/metrics of a running broker: the metrics of RabbitMQ's plugin, those of dashboard and alert rules, and access."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from leveret.client import BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess, free_port

from ..no_tls import NO_TLS

ROOT = Path(__file__).parents[2]
GUEST = ("guest", "guest")
# the metrics in the queries of RabbitMQ's own dashboard "RabbitMQ-Overview" (number 10991 at Grafana)
OVERVIEW = frozenset(
    """
rabbitmq_identity_info rabbitmq_build_info rabbitmq_queue_messages_ready rabbitmq_queue_messages_unacked
rabbitmq_connections rabbitmq_channels rabbitmq_consumers rabbitmq_queues rabbitmq_global_publishers
rabbitmq_resident_memory_limit_bytes rabbitmq_process_resident_memory_bytes rabbitmq_disk_space_available_bytes
rabbitmq_disk_space_available_limit_bytes rabbitmq_process_max_fds rabbitmq_process_open_fds
rabbitmq_process_max_tcp_sockets rabbitmq_process_open_tcp_sockets rabbitmq_channel_messages_published_total
rabbitmq_channel_messages_confirmed_total rabbitmq_channel_messages_unconfirmed
rabbitmq_channel_messages_unroutable_dropped_total rabbitmq_channel_messages_unroutable_returned_total
rabbitmq_channel_messages_delivered_total rabbitmq_channel_messages_delivered_ack_total
rabbitmq_channel_messages_redelivered_total rabbitmq_channel_messages_acked_total rabbitmq_channel_get_total
rabbitmq_channel_get_ack_total rabbitmq_channel_get_empty_total rabbitmq_queue_messages_published_total
rabbitmq_global_messages_received_total rabbitmq_global_messages_received_confirm_total
rabbitmq_global_messages_confirmed_total rabbitmq_global_messages_routed_total
rabbitmq_global_messages_unroutable_dropped_total rabbitmq_global_messages_unroutable_returned_total
rabbitmq_global_messages_delivered_total rabbitmq_global_messages_redelivered_total
rabbitmq_global_messages_delivered_consume_auto_ack_total
rabbitmq_global_messages_delivered_consume_manual_ack_total rabbitmq_global_messages_delivered_get_auto_ack_total
rabbitmq_global_messages_delivered_get_manual_ack_total rabbitmq_global_messages_get_empty_total
rabbitmq_global_messages_acknowledged_total rabbitmq_queues_declared_total rabbitmq_queues_created_total
rabbitmq_queues_deleted_total rabbitmq_channels_opened_total rabbitmq_channels_closed_total
rabbitmq_connections_opened_total rabbitmq_connections_closed_total
""".split()  # noqa: SIM905
)
# docs/reference/metrics.md explains how, and why
LABELLED_OTHERWISE = ("rabbitmq_build", "rabbitmq_channel_messages_", "rabbitmq_queue_messages_published")
# metrics that only exist with links, streams, delays or certificates; the table includes them
NOT_ALWAYS = re.compile(r"leveret_(federation_link|stream|delayed|staged|query|certificate)_\w+")


class Scraped:
    """A broker after a little traffic."""

    def __init__(self, broker: LeveretProcess, port: int) -> None:
        self.broker = broker
        self.port = port
        with BlockingConnection(broker.url, reconnect=False) as connection:
            channel = connection.channel()
            channel.declare_queue("metrics", durable=True)
            channel.confirm_select()
            for _ in range(20):
                channel.publish(b"x" * 10, routing_key="metrics", properties=Properties(delivery_mode=2))
                channel.wait_for_confirms()
            message = channel.get("metrics")
            assert message is not None
            channel.ack(message.delivery_tag)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Send a GET request without credentials."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=30, verify=NO_TLS)

    def families(self, path: str = "/metrics") -> dict[str, Metric]:
        """Return the metric families by their names in queries."""
        found = {}
        for family in parse(self.get(path).text):
            found[family.name + ("_total" if family.type == "counter" else "")] = family
        return found


@pytest.fixture(scope="module")
def scraped() -> Iterator[Scraped]:
    port = free_port()
    with LeveretProcess(arguments=["--metrics-port", str(port)], admin=True) as process:
        yield Scraped(process, port)


def facts() -> dict[str, tuple[str, str, str]]:
    """RabbitMQ's metrics, as tools/metrics_table.py reads them."""
    spec = importlib.util.spec_from_file_location("metrics_table", ROOT / "tools" / "metrics_table.py")
    assert spec is not None
    assert spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    found: dict[str, tuple[str, str, str]] = table.facts()
    return found


def test_what_has_rabbitmqs_name_has_its_type_and_labels(scraped: Scraped) -> None:
    theirs, ours = facts(), scraped.families()
    assert len(ours.keys() & theirs.keys()) > 90
    for name in ours.keys() & theirs.keys():
        kind, labels, _ = theirs[name]
        assert kind in (ours[name].type, "untyped"), name
        if name != "rabbitmq_build_info":
            assert {tuple(sample.labels) for sample in ours[name].samples} == {tuple(filter(None, labels.split(",")))}
    details = scraped.families("/metrics/per-object")
    for name in details.keys() & theirs.keys():
        labels = theirs[name][2].replace("channel", "connection") if "connection_" in name else theirs[name][2]
        mine = {tuple(sample.labels) for sample in details[name].samples}
        if labels and not name.startswith(LABELLED_OTHERWISE):
            assert mine <= {tuple(labels.split(","))}, name


def test_the_overview_dashboard_finds_all_that_it_asks_for(scraped: Scraped) -> None:
    found = scraped.families()
    assert [name for name in sorted(OVERVIEW) if name not in found or not found[name].samples] == []
    (sample,) = found["rabbitmq_global_messages_confirmed_total"].samples
    assert sample.value == 20
    (sample,) = found["rabbitmq_identity_info"].samples
    assert set(sample.labels) >= {"rabbitmq_node", "rabbitmq_cluster"}  # RabbitMQ's queries join on these labels
    acknowledged = found["rabbitmq_global_messages_acknowledged_total"].samples
    assert {each.labels["queue_type"]: each.value for each in acknowledged}["rabbit_classic_queue"] == 1


NAME = re.compile(r"\b((?:rabbitmq|leveret|process)_\w+)")


def asked() -> dict[str, str]:
    """Return each metric that leveret's dashboard and alert rules use, and where."""
    board = json.loads((ROOT / "deploy" / "grafana" / "leveret.json").read_text())
    expressions = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    for line in (ROOT / "deploy" / "prometheus" / "leveret.rules.yml").read_text().splitlines():
        if line.strip().startswith("expr:"):
            expressions.append((line.strip(), line))
    return {name: where for where, text in expressions for name in NAME.findall(text)}


def test_dashboard_and_alerts_ask_for_nothing_that_is_not_there(scraped: Scraped) -> None:
    there = {sample.name for family in scraped.families().values() for sample in family.samples}
    path = "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count"
    there |= {sample.name for family in scraped.families(path).values() for sample in family.samples}
    names = asked()
    assert len(names) > 40
    listed = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for name, where in names.items():
        assert name in there or (NOT_ALWAYS.fullmatch(name) and f"`{name}`" in listed), f"{where}: {name}"


def test_what_only_leveret_measures_moves(scraped: Scraped) -> None:
    found = {sample.name: sample.value for family in scraped.families().values() for sample in family.samples}
    assert found["leveret_confirm_latency_seconds_count"] == 20
    assert found["leveret_journal_sync_seconds_count"] == found["rabbitmq_io_sync_ops_total"] >= 20
    assert found["leveret_turn_seconds_count"] > 20
    assert 0 < found["leveret_confirm_latency_seconds_sum"] < found["rabbitmq_erlang_uptime_seconds"]
    assert found["process_cpu_seconds_total"] > 0
    assert found["leveret_journal_files"] == 1


def test_openmetrics_and_gzip_for_who_asks(scraped: Scraped) -> None:
    answer = scraped.get("/metrics/per-object", accept="application/openmetrics-text; version=1.0.0,*/*;q=0.1")
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    names = {family.name for family in parse_open(answer.text)}
    assert "rabbitmq_queue_messages_published" in names
    with httpx.stream("GET", f"http://127.0.0.1:{scraped.port}/metrics", headers={"accept-encoding": "gzip"}) as raw:
        packed = b"".join(raw.iter_raw())
    assert b"rabbitmq_queues 1\n" in gzip.decompress(packed)
    plain = scraped.get("/metrics", **{"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_the_port_for_everybody_has_nothing_else_and_the_other_wants_a_login(scraped: Scraped) -> None:
    assert scraped.get("/api/overview").status_code == 404
    assert scraped.get("/").status_code == 404
    url = f"{scraped.broker.admin_url}/metrics"
    assert httpx.get(url, verify=NO_TLS).status_code == 401
    assert httpx.get(url, auth=("guest", "wrong"), verify=NO_TLS).status_code == 401
    assert "rabbitmq_queues 1\n" in httpx.get(url, auth=GUEST, headers={"accept": "text/plain"}, verify=NO_TLS).text
    (open_port,) = [each for each in scraped.broker.output.splitlines() if "metrics without login" in each]
    assert f"http://127.0.0.1:{scraped.port}" in open_port


def test_families_and_virtual_hosts_of_ones_choice(scraped: Scraped) -> None:
    chosen = scraped.get("/metrics/detailed?family=queue_coarse_metrics&family=ra_metrics&vhost=/").text
    assert 'rabbitmq_detailed_queue_messages{vhost="/",queue="metrics"} 19\n' in chosen
    assert "rabbitmq_detailed_queue_consumers" not in chosen
    assert "queue=" not in scraped.get("/metrics/detailed?family=queue_coarse_metrics&vhost=none").text
    refused = scraped.get("/metrics/detailed?family=queue_course_metrics")
    assert refused.status_code == 400
    assert "did you mean 'queue_coarse_metrics'?" in refused.json()["reason"]
