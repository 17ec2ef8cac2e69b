"""Connections that stay on the machine need no congestion control, and some of them pay for it.

Where the system's default is BBR each segment waits for its time, by a timer: a fifth to a third of what a message of
64 KiB takes. Reno, which every Linux has and allows everybody, sends at once. Connections to other machines keep what
was chosen for the system (tcp(7), tcp_congestion_control).
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket


def quicken(endpoint: socket.socket, address: str) -> None:
    """If this address, that of one of its ends, is within the machine. What a listening socket accepts inherits it."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        with contextlib.suppress(OSError):  # it only takes longer
            endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
