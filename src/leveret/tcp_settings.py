"""Connections within the machine need no congestion control, and some kinds of it slow them down.

Where the system's default is BBR each segment waits for a timer: a fifth to a third of the time of a message of 64 KiB.
Reno, which every Linux has and allows everybody, sends at once. Connections to other machines keep the system's setting
(tcp(7), tcp_congestion_control).
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket


def quicken(endpoint: socket.socket, address: str) -> None:
    """Use Reno if this address of one of its ends is a loopback one. What a listening socket accepts inherits it."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        with contextlib.suppress(OSError):  # without it the connection is only slower
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
