"""A FastStream application whose handler publishes its process id, and then waits forever if it was told to."""

from __future__ import annotations

import asyncio
import os
import sys

from faststream import FastStream
from faststream.rabbit import RabbitQueue

from leveret.frameworks.faststream_broker import LeveretBroker

URL, NAME = sys.argv[1:]

broker = LeveretBroker(URL)


@broker.subscriber(RabbitQueue(NAME, durable=True))
async def work(is_hanging: str) -> None:
    await broker.publish(str(os.getpid()), f"{NAME}.reports")
    if is_hanging == "wait":
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(FastStream(broker).run())
