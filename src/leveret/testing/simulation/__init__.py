"""Deterministic simulation of brokers and federation links, with the networks and disks that they use."""

from leveret.testing.simulation.consumer import Consumer, Received
from leveret.testing.simulation.node import BrokerDown, Node
from leveret.testing.simulation.publisher import Publisher, Sent
from leveret.testing.simulation.simulation import Simulation
from leveret.testing.simulation.sizes import Sizes

__all__ = ["BrokerDown", "Consumer", "Node", "Publisher", "Received", "Sent", "Simulation", "Sizes"]
