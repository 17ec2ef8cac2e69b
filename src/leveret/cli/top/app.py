"""The screen of `leveret top`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar, Final

from rich.markup import escape
from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from leveret.cli.top.printing import headline, shortened, speeds
from leveret.cli.top.sources import SampleRequest, SampleSource, Snapshot, Unreachable
from leveret.cli.top.views import VIEWS, Item, ViewColumn, arranged, cell, fitting

DETAILS_SHARE: Final = 3  # the details take one part in this many of the width
NAME_WIDTH: Final = 40  # longer texts are shortened, unless their column is wider


class Top(App[None]):
    """The application.

    Args:
        source: the broker's data.
        interval_ms: the interval of updates.
        question: the initial view.
    """

    CSS = """
    #head { height: auto; padding: 0 1; background: $panel; }
    #trouble { height: auto; padding: 0 1; background: $error; color: $text; display: none; }
    #trouble.is-shown { display: block; }
    #filter { display: none; }
    #filter.is-shown { display: block; }
    #details { width: 1fr; display: none; border-left: solid $primary; padding: 0 1; }
    #details.is-shown { display: block; }
    DataTable { width: 2fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(index), f"view('{name}')", name) for index, name in enumerate(VIEWS, 1)),
        Binding("s", "sort", "sort"),
        Binding("r", "turn", "reverse"),
        Binding("slash", "filter", "filter"),
        Binding("d,enter", "details", "details"),
        Binding("space", "pause", "pause"),
        Binding("escape", "leave", "back", show=False),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, source: SampleSource, interval_ms: int, question: SampleRequest) -> None:
        super().__init__()
        self.source = source
        self.question = question
        self.snapshot: Snapshot | None = None
        self.items: list[Item] = []
        self.looks = 0
        self._interval_ms = interval_ms
        self._is_paused = self._is_looking = False
        self._is_first = True  # the first sample of this view

    def compose(self) -> ComposeResult:
        yield Static(f"connecting to {escape(self.source.name)}…", id="head")
        yield Static("", id="trouble")
        yield Input(placeholder="names that contain…", id="filter")
        with Horizontal():
            yield DataTable(cursor_type="row", zebra_stripes=True)
            with VerticalScroll(id="details"):
                yield Static("", id="detail")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        self.set_interval(self._interval_ms / 1000, self._tick)
        self.look()

    def on_unmount(self) -> None:
        self.source.close()

    # -- sampling ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._is_paused and not self._is_looking:
            self.look()

    @work(thread=True, exclusive=True)
    def look(self) -> None:
        """Fetch a sample on another thread: a slow broker must not block the keys."""
        question, worker = self.question, get_current_worker()
        self._is_looking = True
        try:
            found: Snapshot | Unreachable = self.source.ask(question)
        except Unreachable as error:
            found = error
        finally:
            self._is_looking = False
        if not worker.is_cancelled:
            self.call_from_thread(self._looked, question, found)

    def _looked(self, question: SampleRequest, found: Snapshot | Unreachable) -> None:
        if not self.query("#trouble"):
            return  # the screen has been closed
        self.looks += 1
        trouble = self.query_one("#trouble", Static)
        if isinstance(found, Unreachable):
            trouble.update(escape(f"{found}; retrying"))
            trouble.add_class("is-shown")
            return
        if question != self.question:
            return  # another view was chosen meanwhile; its own answer will come
        self._is_first = self.snapshot is None
        self.snapshot = found
        trouble.set_class(bool(found.alarms), "is-shown")
        if found.alarms:
            trouble.update(escape(f"low on {', '.join(found.alarms)}: publishers are blocked"))
        self._show()

    # -- display -------------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        snapshot, question = self.snapshot, self.question
        if snapshot is None or not self.query(DataTable):
            return
        self.items = arranged(question.view, snapshot.items, question.sort, question.is_reversed, question.text)
        order = ("↑" if question.is_reversed else "↓") + question.sort
        what = f"{question.view.name}: {len(self.items):,} of {snapshot.total:,} {order}"
        if question.text:
            what += f" /{question.text}"
        if self._is_paused:
            what += " PAUSED"
        head = "\n".join([headline(snapshot), speeds(snapshot, self._is_first), what])
        self.query_one("#head", Static).update(escape(head))
        self._fill()
        self._show_details()

    def _fill(self) -> None:
        table = self.query_one(DataTable)
        columns = fitting(self.question.view, self._width())
        row = table.cursor_row
        table.clear(columns=True)
        for column in columns:
            title = Text(column.title, justify="right" if column.is_number else "left")
            table.add_column(title, key=column.title)
        for item in self.items:
            table.add_row(*(_cell(column, item, self._is_first) for column in columns))
        if self.items:
            table.move_cursor(row=min(row, len(self.items) - 1))

    def _width(self) -> int:
        width = self.size.width
        return width - width // DETAILS_SHARE if self._shows_details else width

    @property
    def _shows_details(self) -> bool:
        return self.query_one("#details").has_class("is-shown")

    def _show_details(self) -> None:
        table = self.query_one(DataTable)
        if self._shows_details and table.cursor_row < len(self.items):
            item: Any = self.items[table.cursor_row]
            self.query_one("#detail", Static).update(escape(json.dumps(item, indent=1, ensure_ascii=False)))

    def on_resize(self) -> None:
        self._show()

    @on(DataTable.RowHighlighted)
    def _moved(self) -> None:
        self._show_details()

    # -- keys ----------------------------------------------------------------------------------------------------------

    def action_view(self, name: str) -> None:
        view = VIEWS[name]
        self.snapshot, self.items = None, []
        self.question = SampleRequest(view, view.sort, False, self.question.text)
        self.look()

    def action_sort(self) -> None:
        """Sort by the next column."""
        titles = [column.title for column in self.question.view.columns]
        following = titles[(titles.index(self.question.sort) + 1) % len(titles)]
        self.question = replace(self.question, sort=following, is_reversed=False)
        self._show()
        self.look()

    def action_turn(self) -> None:
        self.question = replace(self.question, is_reversed=not self.question.is_reversed)
        self._show()
        self.look()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("is-shown")
        field.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.question = replace(self.question, text=event.value)
        self._show()

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.query_one("#filter").set_class(bool(self.question.text), "is-shown")
        self.query_one(DataTable).focus()
        self.look()

    def action_details(self) -> None:
        self.query_one("#details").toggle_class("is-shown")
        self._show()

    @on(DataTable.RowSelected)
    def _chosen(self) -> None:
        self.action_details()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._show()

    def action_leave(self) -> None:
        """Leave the filter; without a filter, close the details."""
        field = self.query_one("#filter", Input)
        if field.has_class("is-shown"):
            field.value = ""
            field.remove_class("is-shown")
            self.query_one(DataTable).focus()
            self.look()
        else:
            self.query_one("#details").remove_class("is-shown")
            self._show()


def _cell(column: ViewColumn, item: Item, is_first: bool) -> Text:
    text = shortened(cell(column, item, is_first), max(column.width, NAME_WIDTH))
    return Text(text, justify="right" if column.is_number else "left")
