"""Commands for stages: published batches that are not released yet."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import AnswerTable, Option, Spec, arguments, columns

GROUP: Final = "Stages"
QUERIES: Final = columns(
    "name", "title", "last_batch", "reported_batch", "lag", "stages", "messages", "octets", "idle_ms", "checkpoint",
    "owner",
)  # fmt: skip
STAGES: Final = columns("query", "batch", "attempt", "state", "messages", "octets", "idle_ms", "expires_ms")

SPECS: Final = (
    Spec(
        "list_queries", GROUP, "List queries: their last released batches, and what they report of their progress.",
        takes_vhost=True, banner="Listing queries for vhost {vhost} ...",
        show=AnswerTable(QUERIES, tuple(column.name for column in QUERIES), is_streamed=True), is_ours=True,
    ),
    Spec(
        "list_stages", GROUP, "List stages: messages published for batches that are not released yet.", (),
        (Option("query", "query", metavar="name"),), takes_vhost=True,
        banner="Listing stages for vhost {vhost} ...",
        show=AnswerTable(STAGES, tuple(column.name for column in STAGES), is_streamed=True), is_ours=True,
    ),
    Spec(
        "forget_query", GROUP, "Delete a query, its last released batch and its stages.", arguments("name"),
        takes_vhost=True, banner="Deleting query {name} ...", is_ours=True,
    ),
)  # fmt: skip
