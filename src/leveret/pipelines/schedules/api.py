"""Cancels and retimes a schedule's delayed messages over leveret's HTTP API, many with each call."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from leveret.client.protocol.url import parse_url
from leveret.client.segments.api import StreamApi
from leveret.pipelines.errors import PipelineError
from leveret.pipelines.schedules.reminders import RUN, SCHEDULE

TIMEOUT_S: Final = 300.0
"""Timeout in seconds. A call searches all delayed messages, which may be millions, and shares the broker with
others."""
REFUSED: Final = 400
"""Status for a request that is too large, or a time out of range."""


@dataclass(frozen=True)
class DelayedApi:
    """The pending messages of one schedule. It can be pickled; the password is kept out of repr."""

    api: StreamApi
    schedule: str

    @staticmethod
    def of(api_url: str, amqp_url: str, schedule: str) -> DelayedApi:
        """Return the API at ``api_url`` for the virtual host of ``amqp_url``, by default with its user and password.
        ``PipelineError`` for malformed URLs."""
        try:
            vhost = parse_url(amqp_url).vhost
            api = StreamApi.of(api_url, amqp_url, vhost, "")
        except ValueError as error:
            raise PipelineError(f"--api-url {api_url}: {error}") from None
        path = f"{urlsplit(api_url).path.rstrip('/')}/api/delayed/{quote(vhost, safe='', errors='surrogateescape')}"
        return DelayedApi(replace(api, path=f"{path}/messages"), schedule)

    def check(self) -> None:
        """Raise ``PipelineError`` unless the API exists and accepts the login."""
        self._call("GET", {"header": f"{SCHEDULE}={self.schedule}", "limit": 1})

    def retime(self, times: Mapping[str, int]) -> set[str]:
        """Set the time (ms since 1970) of each message by id; return the ids that were pending.

        A request that is too large is split in two; each call does all or nothing, and a repetition does no harm.
        Raises ``PipelineError``.
        """
        try:
            return set(self._call("PUT", self._ours(), times=dict(times))["message_ids"])
        except Refusal:
            if len(times) == 1:
                raise
        ids = sorted(times)
        halves = (ids[: len(ids) // 2], ids[len(ids) // 2 :])
        return {found for half in halves for found in self.retime({each: times[each] for each in half})}

    def cancel(self, ids: list[str], but_of_run: int | None) -> set[str]:
        """Cancel messages by id, except those published by run ``but_of_run``; return the ids that were pending."""
        query = self._ours() | ({} if but_of_run is None else {"without_header": f"{RUN}={but_of_run}"})
        return set(self._call("DELETE", query, message_ids=ids)["message_ids"])

    def cancel_all(self, dry_run: bool = False) -> int:
        """Cancel all messages of the schedule; return their number."""
        return int(self._call("DELETE", self._ours() | ({"dry_run": "true"} if dry_run else {}))["message_count"])

    def _ours(self) -> dict[str, Any]:
        return {"header": f"{SCHEDULE}={self.schedule}"}

    def _call(self, method: str, query: Mapping[str, Any], **asked: Any) -> Any:
        """Call the API and return its answer. Raises ``Refusal`` for status 400, ``PipelineError`` for other
        failures."""
        connection = self.api.connection(TIMEOUT_S)
        headers = self.api.login | {"Content-Type": "application/json"}
        try:
            connection.request(method, f"{self.api.path}?{urlencode(query)}", json.dumps(asked), headers)
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise PipelineError(f"the HTTP API at {self.api.url} (--api-url) can't be reached: {error}") from None
        finally:
            connection.close()
        try:
            told = json.loads(body)
        except ValueError:
            told = None
        if status >= 400:
            raise _refused(self.api, status, told)
        if told is None:
            raise PipelineError(f"the server at {self.api.url} is not leveret's HTTP API: correct --api-url")
        return told


class Refusal(PipelineError):
    """The broker refused a request, and has done nothing of it."""


def _refused(api: StreamApi, status: int, told: Any) -> PipelineError:
    reason = told.get("reason") or told.get("error") if isinstance(told, dict) else told
    if status == REFUSED:
        return Refusal(f"the HTTP API at {api.url} refused: {reason}")
    if status in (401, 403):
        return PipelineError(
            f"the HTTP API at {api.url} refuses user {api.user!r} ({status}: {reason}): the user needs a tag, such as "
            "management, and permission to read and write the delay levels; --api-url may name another user"
        )
    if status in (404, 405):
        return PipelineError(
            f"the HTTP API at {api.url} does not support delayed messages ({status}): only leveret's does; with "
            "RabbitMQ, omit --api-url"
        )
    return PipelineError(f"the HTTP API at {api.url} replied {status}: {reason}")


def slices(rows: Iterator[tuple[str, int]], size: int) -> Iterator[dict[str, int]]:
    """Yield the pairs in dictionaries of this size."""
    found: dict[str, int] = {}
    for name, value in rows:
        found[name] = value
        if len(found) == size:
            yield found
            found = {}
    if found:
        yield found
