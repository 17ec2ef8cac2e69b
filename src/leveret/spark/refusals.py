"""Error texts for a failed connection to the broker, naming the option to change."""

from __future__ import annotations

from leveret.client import AuthenticationFailed, ConnectionClosed
from leveret.wire.errors import ACCESS_REFUSED, NOT_ALLOWED


def no_connection(error: ConnectionClosed, url: str = "option url") -> str:
    """Describe a failed connection in one line for the user; ``url`` tells where the URL was given."""
    if isinstance(error, AuthenticationFailed):
        return f"the broker refused the connection: {error}; correct user and password in {url}"
    if error.code in (ACCESS_REFUSED, NOT_ALLOWED):
        return (
            f"the broker refused the connection: {error}; correct the virtual host in {url}, or add it and give the "
            "user permissions there"
        )
    what = "the broker closed the connection" if error.code else "the broker can't be reached"
    return f"{what}: {error}; is {url} correct, and is the broker running?"
