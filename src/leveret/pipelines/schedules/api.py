"""Delayed messages of a schedule, over leveret's HTTP API: cancelled and given other times, many with a call."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from leveret.client.url import parse_url
from leveret.pipelines.errors import PipelineError
from leveret.pipelines.schedules.reminders import RUN, SCHEDULE
from leveret.spark.segments.api import Api

TIMEOUT_S: Final = 300.0
"""A call looks at all that waits, millions of messages, and others have their turn meanwhile."""
REFUSED: Final = 400
"""Too much at once, or a time that can't be had."""


@dataclass(frozen=True)
class DelayedApi:
    """The pending messages of one schedule. It pickles; the password is kept out of repr."""

    api: Api
    schedule: str

    @staticmethod
    def of(api_url: str, amqp_url: str, schedule: str) -> DelayedApi:
        """The API at ``api_url`` for the virtual host of ``amqp_url``, whose user and password count unless it names
        others. ``PipelineError`` for URLs that are none."""
        try:
            vhost = parse_url(amqp_url).vhost
            api = Api.of(api_url, amqp_url, vhost, "")
        except ValueError as error:
            raise PipelineError(f"--api-url {api_url}: {error}") from None
        path = f"{urlsplit(api_url).path.rstrip('/')}/api/delayed/{quote(vhost, safe='', errors='surrogateescape')}"
        return DelayedApi(replace(api, path=f"{path}/messages"), schedule)

    def check(self) -> None:
        """``PipelineError`` unless it is there and lets us in."""
        self._call("GET", {"header": f"{SCHEDULE}={self.schedule}", "limit": 1})

    def retime(self, times: Mapping[str, int]) -> set[str]:
        """Give each id its time (ms since 1970); those that were pending.

        What is too much for one call is cut in two; as each call does all or nothing, and the same again does no harm,
        so does this. ``PipelineError`` as all others.
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
        """Cancel those with these ids, but not those that this run has published; those that were pending."""
        query = self._ours() | ({} if but_of_run is None else {"without_header": f"{RUN}={but_of_run}"})
        return set(self._call("DELETE", query, message_ids=ids)["message_ids"])

    def cancel_all(self, dry_run: bool = False) -> int:
        """Cancel all of the schedule; how many there were."""
        return int(self._call("DELETE", self._ours() | ({"dry_run": "true"} if dry_run else {}))["message_count"])

    def _ours(self) -> dict[str, Any]:
        return {"header": f"{SCHEDULE}={self.schedule}"}

    def _call(self, method: str, query: Mapping[str, Any], **asked: Any) -> Any:
        """``Refusal`` for 400, ``PipelineError`` for all else that is not done."""
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
    """The broker has done nothing of what was asked."""


def _refused(api: Api, status: int, told: Any) -> PipelineError:
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
    """Pairs in dictionaries of this size."""
    found: dict[str, int] = {}
    for name, value in rows:
        found[name] = value
        if len(found) == size:
            yield found
            found = {}
    if found:
        yield found
