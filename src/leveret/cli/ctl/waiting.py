"""Calls that wait for the broker's start or stop."""

from __future__ import annotations

import os
import select
import time
from typing import Any, Final

from leveret.control.calls.blocking import ControlClient
from leveret.control.refusal import NOT_RUNNING, Refused

AWAIT_S: Final = 300.0
"""The default timeout for a start, as in rabbitmqctl."""
RETRY_S: Final = 0.1


def when_it_is_up(command: str, fields: dict[str, object], data_dir: str, timeout_s: float | None) -> Any:
    """Call the command as soon as a broker answers. Raises TimeoutError or another OSError if none does in time."""
    until = time.monotonic() + (timeout_s or AWAIT_S)
    while True:
        left = until - time.monotonic()
        try:
            with ControlClient(data_dir, timeout_s=max(left, RETRY_S)) as control:
                return control.call(command, **fields)
        except PermissionError:
            raise
        except OSError:
            if left <= 0:
                raise
            time.sleep(RETRY_S)


def until_it_has_gone(command: str, fields: dict[str, object], data_dir: str, timeout_s: float | None) -> Any:
    """Call the command and return when the broker's process has ended. Raises TimeoutError."""
    with ControlClient(data_dir, timeout_s=timeout_s) as control:
        process = _process(control.server_pid())
        try:
            answer = control.call(command, **fields)
            # if the process is in another container, watch for the socket's end, shortly before the process's
            end = control.fileno() if process is None else process
            if not select.select([end], [], [], timeout_s)[0]:
                raise TimeoutError
            return answer
        finally:
            if process is not None:
                os.close(process)


def _process(pid: int) -> int | None:
    """Return a file descriptor that is readable when the process has ended; None if it can't be watched."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def until_the_app_has_stopped(command: str, fields: dict[str, object], data_dir: str, timeout_s: float | None) -> Any:
    """Call the command and return when the application has stopped and the process waits for `start_app`."""
    until = time.monotonic() + (timeout_s or AWAIT_S)
    answer = when_it_is_up(command, fields, data_dir, timeout_s)
    while True:
        try:
            when_it_is_up("overview", {}, data_dir, until - time.monotonic())
        except Refused as refused:
            if refused.kind == NOT_RUNNING:
                return answer
            raise
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(RETRY_S)


def until_it_serves(command: str, fields: dict[str, object], data_dir: str, timeout_s: float | None) -> Any:
    """Call the command and return when the broker accepts connections."""
    with ControlClient(data_dir, timeout_s=timeout_s) as control:
        control.call(command, **fields)
    until = time.monotonic() + (timeout_s or AWAIT_S)
    while True:
        try:
            return when_it_is_up("await_startup", {}, data_dir, until - time.monotonic())
        except Refused as refused:
            # NOT_RUNNING: the stopped application still answers; the broker is starting
            if refused.kind != NOT_RUNNING:
                raise
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(RETRY_S)
