"""The origin of a request beyond its address: a browser on this machine may act for pages of any site.

If a site's owner points its name to this machine (DNS rebinding), the browser considers page and API the same origin,
and the page can try well-known passwords. A page of another site can submit forms with the credentials stored in the
browser. Neither can forge the headers Host and Origin.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

# headers that a proxy adds about its client
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def is_direct(request: Request) -> bool:
    """Return whether the client addressed this machine by an address or its own name, without a proxy in between."""
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
    """Return whether a page of another site requests a change."""
    origin = request.headers.get("origin")
    if request.method in SAFE_METHODS or origin is None:
        return False
    return urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()


def _host(header: str) -> str:
    """Return the host of a Host header in lower case, without port and brackets; "?" if it is invalid."""
    try:
        return (urlsplit(f"//{header}").hostname or "") if header else ""
    except ValueError:
        return "?"
