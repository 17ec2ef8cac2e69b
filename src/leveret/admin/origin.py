"""From where a request comes, beside its address: a browser on this machine speaks for pages of anybody.

A page whose name its owner lets point to this machine (DNS rebinding) is of the same origin as the API to the browser,
and may say any password that everybody knows. A page of another site may send forms with the credentials that the
browser keeps. Neither can lie about the headers Host and Origin.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

# what a proxy says of the client that it speaks for
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def is_direct(request: Request) -> bool:
    """Whether the client asked for this machine by an address or a name of its own, and no proxy is between."""
    if any(name in request.headers for name in FORWARDED):
        return False
    host = _host(request.headers.get("host", ""))
    if not host or host == "localhost" or host.endswith(".localhost") or host == socket.gethostname().lower():
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_foreign(request: Request) -> bool:
    """Whether a page of another site asks for something that changes things."""
    origin = request.headers.get("origin")
    if request.method in SAFE_METHODS or origin is None:
        return False
    return urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()


def _host(header: str) -> str:
    """The host of a Host header, without port and brackets, in small letters; a name that is none for what is none."""
    try:
        return (urlsplit(f"//{header}").hostname or "") if header else ""
    except ValueError:
        return "?"
