"""Commands for publisher references: clients whose publishes are numbered."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import AnswerTable, Spec, arguments, columns

GROUP: Final = "Publishers"
PUBLISHERS: Final = columns("name", "epoch", "last_id", "refused", "connection", "idle_ms", "owner")

SPECS: Final = (
    Spec(
        "list_publishers", GROUP, "List publisher references, their epochs and last publishing ids.",
        takes_vhost=True, banner="Listing publisher references for vhost {vhost} ...",
        show=AnswerTable(PUBLISHERS, tuple(column.name for column in PUBLISHERS), is_streamed=True), is_ours=True,
    ),
    Spec(
        "forget_publisher", GROUP, "Delete a publisher reference; its client is refused if it comes back.",
        arguments("name"), takes_vhost=True, banner="Deleting publisher reference {name} ...", is_ours=True,
    ),
)  # fmt: skip
