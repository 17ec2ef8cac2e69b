"""docs/reference/clients.md from the samples of a run: medians, ratios, what is slower first, and the goals."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from types import ModuleType

import pytest

from .bench_modules import imported

OPTIONS = argparse.Namespace(rounds=3, seconds=1.0, idle_seconds=10, begun="today", about={"kernel": "Linux"})


@pytest.fixture(scope="module")
def clients() -> Iterator[ModuleType]:
    with imported("clients") as found:
        yield found[0]


def page(clients: ModuleType, **costs: list[float]) -> str:
    """Return the page of a run in which each message of `publish` costs so much, by client, on leveret."""
    results = clients.Results(["leveret"])
    for client, values in costs.items():
        name = clients.OURS if client == "ours" else client
        results.samples += [clients.Sample("publish", name, "leveret", value, 1000) for value in values]
    text: str = results.page(OPTIONS)
    return text


def test_the_table_has_medians_their_spread_and_ratios_to_each_peer(clients: ModuleType) -> None:
    said = page(clients, ours=[3.0, 4.0, 9.0], pika=[20.0, 24.0, 40.0])
    assert "| leveret.client asyncio | 4.00 (3.00 to 9.00) |  | 6.00 | 1,000 |" in said
    assert "| pika | 24.0 (20.0 to 40.0) |  | 1.00 | 1,000 |" in said


def test_the_page_begins_with_what_costs_more(clients: ModuleType) -> None:
    said = page(clients, ours=[30.0], pika=[20.0])
    assert said.splitlines()[2] == "- publish, on leveret: leveret.client asyncio takes 1.50 × the CPU of pika"
    assert "nowhere in this run" in page(clients, ours=[3.0], pika=[20.0])


def test_each_goal_is_met_or_missed(clients: ModuleType) -> None:
    met = page(clients, ours=[2.0], pika=[20.0])
    assert "pika takes 10 × the CPU of leveret.client asyncio, goal 8: met by 25%" in met
    missed = page(clients, ours=[4.0], pika=[20.0])
    assert "pika takes 5.00 × the CPU of leveret.client asyncio, goal 8: **missed by 38%**" in missed


def test_the_document_has_a_place_for_the_run(clients: ModuleType) -> None:
    assert "a new run" in clients.replaced(clients.DOCUMENT.read_text(), "a new run", clients.BEGIN)


def test_each_client_has_a_number_of_messages_for_each_of_its_loads(clients: ModuleType) -> None:
    counts = [
        clients.count_of(load, client, broker, 3)
        for client, loads in clients.LOADS.items()
        for load in loads
        if load != clients.IDLE
        for broker in ("leveret", "rabbitmq")
    ]
    assert min(counts) > 1000
