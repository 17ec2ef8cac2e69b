"""The state between stop_app and start_app: the process keeps its data directory and answers on its control socket."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal

from leveret.control.calls.socket import ControlSocket
from leveret.control.stopped_app import StoppedApp
from leveret.net.notify import Notifier

logger = logging.getLogger("leveret")


async def wait_for_start(data_dir: str, notifier: Notifier) -> bool:
    """Wait for start_app (returns True), or for stop, SIGTERM or SIGINT (returns False)."""
    gc.unfreeze()  # free the stopped broker, which is garbage with reference cycles
    gc.enable()
    gc.collect()
    state = StoppedApp(data_dir)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, state.end.set)
    loop.add_signal_handler(signal.SIGHUP, logger.info, "%s", "the settings will be read again at start_app")
    control = ControlSocket(state, data_dir)
    await control.listen()
    notifier.status("stopped by stop_app; start the broker again with start_app")
    notifier.watch(loop)
    logger.info("stopped; start the broker again with start_app")
    await state.end.wait()
    await control.close()
    if not state.starts:
        logger.info("stopped")
    return state.starts
