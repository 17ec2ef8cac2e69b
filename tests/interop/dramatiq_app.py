"""An application for `dramatiq`: an actor that publishes its process id, and then waits forever if it was told to."""

from __future__ import annotations

import os
import threading

import dramatiq
import pika
from dramatiq.brokers.rabbitmq import RabbitmqBroker

URL = os.environ["DRAMATIQ_URL"]
NAME = os.environ["DRAMATIQ_NAME"]

broker = RabbitmqBroker(url=URL, confirm_delivery=True, middleware=[])
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=NAME, actor_name="report")
def report(is_hanging: bool) -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", f"{NAME}.reports", str(os.getpid()).encode())
    if is_hanging:
        threading.Event().wait()
