"""/api/streams: stream files for remote readers, and leases that protect them. RabbitMQ does not have these paths."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import Response

from leveret.admin import body as bodies
from leveret.admin.answers import encode, json_answer, no_object
from leveret.admin.body import Body, integer, text
from leveret.admin.call import ApiCall
from leveret.admin.file_answer import OpenFile, file_answer
from leveret.admin.paths.examined import ExaminedFile, Examiner, native_times, sealed_file
from leveret.control.refusal import NOT_FOUND, Refused
from leveret.store.disk import RealDisk
from leveret.store.stream_files import StreamDamaged
from leveret.store.tables import Extent, TableFile, table_files

GRANT: Final = Body("duration_ms", duration_ms=integer, first=integer, name=text)
RENEW: Final = Body("duration_ms", duration_ms=integer, first=integer)
# how long an answer waits for hashes that are not known yet; clients ask again for the others
HASHES_S_MAX: Final = 2.0
PARQUET: Final = "application/vnd.apache.parquet"
NATIVE: Final = "application/octet-stream"
_NATIVE_NAME = re.compile(r"(\d{20})\.lvs")

Facts = dict[str, Any]


async def find(call: ApiCall) -> Any:
    """Return the stream at the path with its files, or None."""
    try:
        return await call.ask("get_stream_files", **_names(call))
    except Refused as refused:
        if refused.kind != NOT_FOUND:
            raise
        return None


def _names(call: ApiCall) -> dict[str, str]:
    """Return the fields that name the stream and the user whose permissions count."""
    return {"vhost": call.values["vhost"], "name": call.values["stream"], "user": call.user.name}


# -- files -------------------------------------------------------------------------------------------------------------


async def segments(call: ApiCall) -> Response:
    """GET: the messages in files, and those that are in no file yet."""
    facts: Facts = call.found
    tables = await asyncio.to_thread(_tables, facts)
    native = await asyncio.to_thread(_native, facts)
    sealed = [file for file, _ in (*tables, *native) if file is not None]
    await _find_out(call.examiner, sealed)
    rows = await asyncio.to_thread(_rows, call.examiner, [*tables, *native])
    await asyncio.to_thread(_forget, call.examiner, facts, sealed)
    committed, first = facts["committed_offset"], facts["first_offset"]
    unsealed = max([first, *(row["last_offset"] + 1 for _, row in tables)])
    written = max(first, facts["written_offset"])
    answer = {name: facts[name] for name in ("vhost", "name", "creation", "schema", "first_offset")}
    answer |= {
        "next_offset": committed,
        "retained_from_offset": facts["retained_from_offset"],
        "segments": rows,
        "unsealed": _span(unsealed, committed),
        "tail": _span(written, committed),
        "leases": facts["leases"],
    }
    return json_answer(encode(answer))


async def segment(call: ApiCall) -> Response:
    """GET: the bytes of a file, or a range of them."""
    opened = await asyncio.to_thread(_opened, call.found, call.values["file"])
    if opened is None:
        raise no_object()
    return file_answer(call.request, opened)


Row = tuple[ExaminedFile | None, dict[str, Any]]


def _span(first: int, end: int) -> dict[str, int] | None:
    return {"first_offset": first, "last_offset": end - 1} if end > first else None


def _own_tables(facts: Facts) -> list[TableFile]:
    """Return the files with messages that the stream still has."""
    extent = Extent(facts["creation"], facts["first_offset"], 1 << 63)
    return [file for file in table_files(RealDisk(), facts["tables"]) if extent.has(file)]


def _tables(facts: Facts) -> list[Row]:
    found: list[Row] = []
    for table in _own_tables(facts):
        try:
            file = sealed_file(table.path)
        except FileNotFoundError:
            continue  # deleted by retention meanwhile
        name = os.path.basename(table.path)
        found.append((file, _row("table", name, table.first, table.last, file.size) | {"date": table.date}))
    return found


def _native(facts: Facts) -> list[Row]:
    """Return the native files. The newest one grows, so it has no hash; its size is that when the broker was asked."""
    found: list[Row] = []
    for index, (first, end, size) in enumerate(facts["native"]):
        name = f"{first:020d}.lvs"
        path = os.path.join(facts["directory"], name)
        row = _row("native", name, first, end - 1, size)
        try:
            if index < len(facts["native"]) - 1:
                found.append((sealed_file(path), row))
            else:
                first_us, last_us = native_times(path, size)
                found.append((None, row | _times(first_us, last_us)))
        except (FileNotFoundError, StreamDamaged):
            continue
    return found


def _row(kind: str, name: str, first: int, last: int, size: int) -> dict[str, Any]:
    offsets = {"first_offset": first, "last_offset": last}
    return {"kind": kind, "file": name, **offsets, "size_bytes": size, "sha256": None, **_times(None, None)}


def _times(first_us: int | None, last_us: int | None) -> dict[str, int | None]:
    first_ms = None if first_us is None else first_us // 1000
    return {"first_ms": first_ms, "last_ms": None if last_us is None else last_us // 1000}


async def _find_out(examiner: Examiner, files: Sequence[ExaminedFile]) -> None:
    """Wait briefly until all facts of these files are known; reading continues after the answer."""
    known = await asyncio.to_thread(lambda: [examiner.known(file) for file in files])
    futures = [examiner.find_out(file) for file, found in zip(files, known, strict=True) if found is None]
    if futures:
        await asyncio.wait([asyncio.wrap_future(future) for future in futures], timeout=HASHES_S_MAX)


def _rows(examiner: Examiner, found: Sequence[Row]) -> list[dict[str, Any]]:
    rows = []
    for file, row in found:
        known = None if file is None else examiner.known(file)
        more = {} if known is None else {"sha256": known.sha256} | _times(known.first_us, known.last_us)
        rows.append(row | more)
    return rows


def _forget(examiner: Examiner, facts: Facts, sealed: Sequence[ExaminedFile]) -> None:
    for directory in (facts["directory"], facts["tables"]):
        examiner.forget(directory, sealed)


def _opened(facts: Facts, name: str) -> OpenFile | None:
    """Open the file of this name, if it belongs to the stream."""
    match = _NATIVE_NAME.fullmatch(name)
    try:
        if match is not None:
            sizes = {first: size for first, _, size in facts["native"]}
            if int(match[1]) not in sizes:
                return None
            size = sizes[int(match[1])]
            file = open(os.path.join(facts["directory"], name), "rb", buffering=0)  # noqa: SIM115 (its answer closes it)
            return OpenFile(file, size, f'"{facts["creation"]}-{match[1]}-{size}"', NATIVE)
        path = next((table.path for table in _own_tables(facts) if os.path.basename(table.path) == name), None)
        if path is None:
            return None
        file = open(path, "rb", buffering=0)  # noqa: SIM115
        status = os.fstat(file.fileno())
        return OpenFile(file, status.st_size, f'"{name.removesuffix(".parquet")}-{status.st_size}"', PARQUET)
    except FileNotFoundError:
        return None


# -- leases ------------------------------------------------------------------------------------------------------------


async def grant(call: ApiCall) -> Response:
    """POST: a new lease."""
    asked = GRANT.take(bodies.decode(await bodies.read(call.request)))
    asked["holder"] = asked.pop("name", "") or call.user.name
    return json_answer(encode(await call.ask("grant_stream_lease", **_names(call), **asked)), 201)


async def leases(call: ApiCall) -> Response:
    """GET: the leases in effect."""
    return json_answer(encode(call.found["leases"]))


async def renew(call: ApiCall) -> Response:
    """PUT: renew a lease for its duration."""
    asked = RENEW.take(bodies.decode(await bodies.read(call.request)))
    return json_answer(encode(await _of_lease(call, "renew_stream_lease", asked)))


async def release(call: ApiCall) -> Response:
    """DELETE: end a lease."""
    await _of_lease(call, "release_stream_lease", {})
    return Response(b"", 204)


async def _of_lease(call: ApiCall, command: str, asked: dict[str, Any]) -> Any:
    if call.found is None:  # a PUT comes here even if the stream does not exist
        raise no_object()
    try:
        return await call.ask(command, **_names(call), id=call.values["id"], **asked)
    except Refused as refused:
        raise (no_object() if refused.kind == NOT_FOUND else refused) from None
