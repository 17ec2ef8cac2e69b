"""The topologies of RabbitMQ's "Federated Exchanges" with real processes: each consumer gets each message once."""

from __future__ import annotations

from pathlib import Path

from .federated import Net

AMOUNT = 200


async def test_pair(tmp_path: Path) -> None:
    """Each is upstream of the other; with max-hops 1 nothing comes back."""
    async with Net(tmp_path, "one", "two") as net:
        one, two = net.nodes
        one.follow(two)
        two.follow(one)
        await net.attend()
        await net.check({0: [0, 1], 1: [0, 1]}, AMOUNT)


async def test_pair_with_more_hops_than_it_needs(tmp_path: Path) -> None:
    """max-hops would allow more, but a message does not return to a broker that it has passed."""
    async with Net(tmp_path, "one", "two") as net:
        one, two = net.nodes
        one.follow(two, **{"max-hops": 10})
        two.follow(one, **{"max-hops": 10})
        await net.attend()
        await net.check({0: [0, 1], 1: [0, 1]}, AMOUNT)


async def test_complete_graph_of_three(tmp_path: Path) -> None:
    async with Net(tmp_path, "one", "two", "three") as net:
        for node in net.nodes:
            node.follow(*(other for other in net.nodes if other is not node))
        await net.attend()
        everywhere = [0, 1, 2]
        await net.check(dict.fromkeys(everywhere, everywhere), AMOUNT)


async def test_fan_out_tree(tmp_path: Path) -> None:
    """Three levels: max-hops is the number of levels minus one. Leaves don't publish upwards."""
    async with Net(tmp_path, "root", "left", "right", "left-left", "left-right", "right-left") as net:
        root, left, right, *leaves = net.nodes
        left.follow(root, **{"max-hops": 2})
        right.follow(root, **{"max-hops": 2})
        for leaf, branch in zip(leaves, (left, left, right), strict=True):
            leaf.follow(branch, **{"max-hops": 2})
        await net.attend()
        await net.check({0: [0, 1, 2, 3, 4, 5], 1: [1, 3, 4], 2: [2, 5], 3: [3]}, AMOUNT)


async def test_ring_of_six(tmp_path: Path) -> None:
    """Each follows its neighbour; with max-hops 5 a message reaches them all and does not return."""
    async with Net(tmp_path, *(f"ring-{number}" for number in range(6))) as net:
        for index, node in enumerate(net.nodes):
            node.follow(net.nodes[index - 1], **{"max-hops": 5})
        await net.attend()
        everywhere = list(range(6))
        await net.check(dict.fromkeys(everywhere, everywhere), AMOUNT)
