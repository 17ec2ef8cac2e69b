"""What the tests' HTTP clients get as `verify`, when they talk to a broker without TLS."""

from __future__ import annotations

import ssl
from typing import Final

NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Knows no authority, so that it trusts nobody.

By default httpx reads all of the world's authorities, for each client and for each request that is sent without one,
and that takes as long as several requests.
"""
