"""Type checkers know what a codec decodes, what a handler gets and returns, and what a delivery has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
RIGHT = """
from typing import Any, assert_type

import msgspec
import pydantic

from leveret.client import (
    JSON, BlockingRpc, Channel, Codec, Delivery, Rpc, RpcServer, msgspec_struct, pydantic_model
)


class Order(pydantic.BaseModel):
    number: int


class Price(msgspec.Struct):
    amount: float


ORDERS, PRICES = pydantic_model(Order), msgspec_struct(Price)


async def use(channel: Channel, rpc: Rpc, blocking: BlockingRpc, server: RpcServer, delivery: Delivery) -> None:
    assert_type(ORDERS, Codec[Order])
    assert_type(delivery.decode(ORDERS), Order)
    assert_type(delivery.decode(PRICES), Price)
    assert_type(delivery.json(), Any)
    assert_type(delivery.message_id, str | None)
    assert_type(delivery.timestamp, int | None)
    assert_type(delivery.ack(), bool)
    assert_type((await rpc.call(ORDERS.encode(Order(number=1)))).decode(PRICES), Price)
    assert_type(blocking.call(PRICES.encode(Price(1.0))).decode(JSON), Any)
    await channel.publish(ORDERS.encode(Order(number=1)), routing_key="orders")

    @server.serve("prices", codec=ORDERS, reply_codec=PRICES)
    async def price(order: Order) -> Price:
        return Price(order.number * 2.0)

    @server.serve("bytes")
    async def plain(delivery: Delivery) -> bytes | None:
        return None
"""
WRONG = """
import pydantic

from leveret.client import Delivery, RpcServer, pydantic_model


class Order(pydantic.BaseModel):
    number: int


ORDERS = pydantic_model(Order)


def use(delivery: Delivery, server: RpcServer) -> None:
    ORDERS.encode(1)  # arg-type
    text: str = delivery.decode(ORDERS)  # assignment
    pydantic_model(int)  # type-var

    @server.serve("orders", codec=ORDERS)  # type-var
    async def other(order: Delivery) -> Order:
        raise NotImplementedError
"""


def checked(sources: dict[str, str], directory: Path) -> str:
    """Return what mypy says of these modules."""
    for name, source in sources.items():
        (directory / f"{name}.py").write_text(source)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", str(directory)]
    environment = {"MYPYPATH": str(TOP / "src"), "MYPY_CACHE_DIR": str(directory / "cache")}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


def guides() -> dict[str, str]:
    """Return the programs of the guides that use leveret's client only."""
    found: dict[str, str] = {}
    for page in ("client.md", "coming-from-aio-pika.md", "coming-from-pika.md"):
        text = (TOP / "docs" / "guides" / page).read_text()
        for name, program in re.findall(r"^```python title=\"([^\"]+)\.py\"\n(.*?)^```$", text, re.M | re.S):
            if not name.endswith("pika"):
                found[f"{page.partition('.')[0]}_{name}".replace("-", "_")] = program
    assert len(found) > 8
    return found


def test_types_are_known_also_in_the_guides(tmp_path: Path) -> None:
    assert checked({"right": RIGHT} | guides(), tmp_path) == ""


def test_wrong_types_are_found(tmp_path: Path) -> None:
    found = re.findall(r"wrong\.py:(\d+): error: .* \[[\w-]+\]", checked({"wrong": WRONG}, tmp_path))
    assert sorted(set(map(int, found))) == [number for number, line in enumerate(WRONG.split("\n"), 1) if "# " in line]
