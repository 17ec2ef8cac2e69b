"""The web user interface: the files in site/, served unchanged from memory.

The served paths are a dictionary of the files that exist at the start, so no path leads to other files. The page itself
is requested each time (it is small, and has an ETag). All other files have a hash of all of them in their path, and may
be cached for ever.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from leveret.admin.answers import GZIP_OCTETS_MIN
from leveret.control.calls.client import AsyncControlClient

SITE: Final = Path(__file__).parent / "site"
HOME: Final = "index.html"
SERVED: Final = frozenset({".html", ".js", ".css", ".svg"})
VERSION_MARK: Final = b"{version}"
GZIP_LEVEL: Final = 9

# only files of this origin, no inline code or style, no embedding in frames; text is never interpreted as HTML
POLICY: Final = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:",
        "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
        "require-trusted-types-for 'script'", "trusted-types 'none'",
    )
)  # fmt: skip
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
REVALIDATE: Final = "no-cache"
FOR_EVER: Final = "public, max-age=31536000, immutable"


class StaticFile:
    """One file, plain and compressed."""

    def __init__(self, name: str, content: bytes, cache_control: str) -> None:
        """Take the type of the file from its name."""
        self.content = content
        self.packed = gzip.compress(content, GZIP_LEVEL, mtime=0) if len(content) >= GZIP_OCTETS_MIN else content
        self.etag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        self._headers = {**HEADERS, "cache-control": cache_control, "etag": self.etag, "content-type": kind}
        if kind.startswith("text/") or kind.endswith("javascript"):
            self._headers["content-type"] += "; charset=utf-8"

    def answer(self, request: Request) -> Response:
        """Return 200, or 304 if the client has the file."""
        known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known or "*" in known:
            return Response(b"", 304, self._headers)
        if self.packed is self.content or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.content, 200, self._headers)
        return Response(self.packed, 200, self._headers | {"content-encoding": "gzip"})

    async def open(self, request: Request, control: AsyncControlClient) -> Response:
        """Answer without a login, as `Route.open`."""
        return self.answer(request)


def files(site: Path = SITE) -> dict[str, StaticFile]:
    """Return the files by path in the URL: the page at "/", all others below "/site/VERSION/"."""
    found = {
        path.relative_to(site).as_posix(): path.read_bytes()
        for path in sorted(site.rglob("*"))
        if path.is_file() and path.suffix in SERVED
    }
    version = hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:12]
    home = found.pop(HOME).replace(VERSION_MARK, version.encode())
    served = {"/": StaticFile(HOME, home, REVALIDATE)}
    return served | {f"/site/{version}/{name}": StaticFile(name, content, FOR_EVER) for name, content in found.items()}
