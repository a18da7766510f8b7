"""``Page``: what all screens have: a title, a list, a line for notes, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Static

from rmqctl.cli.browse.model.lines import Cancelled, Line, Source, Stop, error_text
from rmqctl.cli.browse.screens.asked import (
    place_of,
    place_problem,
    text_problem,
    time_of,
    time_problem,
)
from rmqctl.cli.browse.widgets.lines import Lines
from rmqctl.cli.browse.widgets.prompt import Check, Prompt
from rmqctl.cli.browse.widgets.threads import in_background, in_thread
from rmqctl.cli.text import visible
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened
    from rmqctl.engine.messagestore import MessageStore


T = TypeVar("T")


class Page(Screen[int | None]):
    """A screen with one list. ``crumbs`` is its title. :meth:`make_source` returns the source of
    the list, for the store as it is open then."""

    DEFAULT_CSS = """
    Page > #title { height: 1; background: $primary; color: $text; text-style: bold; }
    Page > #title > #crumbs { width: 1fr; }
    Page > #title > #store { width: auto; }
    Page > #state { height: 1; color: $text-muted; }
    Page > #note { height: auto; max-height: 4; color: $text-warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_line", "Open"),
        Binding("escape,backspace,left,h", "back", "Back", key_display="esc"),
        Binding("f", "find", "Find"),
        Binding("slash", "find", show=False),
        Binding("t", "time", "Time"),
        Binding("colon", "place", "Offset", show=False),
        Binding("l", "log", "Log"),
        Binding("v", "findings", "Verify"),
        Binding("r", "look_again", "Reload", show=False),
        Binding("n", "next(1)", "Next", show=False),
        Binding("p,N", "next(-1)", "Previous", show=False),
    ]
    AUTO_FOCUS = "Lines"

    #: The topic of this page, in which a search looks first.
    topic: str | None = None

    def __init__(self, opened: Opened, crumbs: str, number: int | None = None) -> None:
        super().__init__()
        self.opened = opened
        self.crumbs = crumbs
        self._number = number
        self._seen: MessageStore | None = None
        self._said, self._said_at = "", 0

    # --- what a page is --------------------------------------------------------------------

    def make_source(self) -> Source:
        """The source of the list. Called again when the store was opened again."""
        raise NotImplementedError

    def extras(self) -> list[Widget]:
        """The widgets below the list."""
        return []

    # --- life ------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        with Horizontal(id="title"):
            yield Static(id="crumbs", markup=False)
            yield Static(id="store", markup=False)
        yield Static(id="state", markup=False)
        yield Lines()
        yield from self.extras()
        yield Static(id="note", markup=False)
        yield Footer(show_command_palette=False)

    @property
    def lines(self) -> Lines:
        return self.query_one(Lines)

    def on_mount(self) -> None:
        self.show_title()
        self.list_anew(self._number)

    def on_screen_resume(self) -> None:
        if self._seen is not None and self._seen is not self.opened.store:
            self.came_back_to_another_store()

    def came_back_to_another_store(self) -> None:
        """Called when this page is shown again, and the store was opened again meanwhile."""
        self.list_anew(self.lines.cursor)

    def list_anew(self, number: int | None = None) -> None:
        """Makes the list again for the store as it is open now."""
        self._seen = self.opened.store
        self.lines.show(self.make_source(), number)
        in_background(self, "store", self._show_store)

    async def _show_store(self) -> None:
        state = await self.work_out(lambda stop: self.opened.state())
        if state:
            self.query_one("#store", Static).update(Text(f" {visible(state)} "))

    def show_title(self) -> None:
        name = visible(self.opened.root.name or str(self.opened.root))
        self.query_one("#crumbs", Static).update(
            Text(f" {name} {visible(self.crumbs)}", no_wrap=True, overflow="ellipsis")
        )

    def show_state(self, text: str) -> None:
        """Sets the text of the second line."""
        self.query_one("#state", Static).update(
            Text(f" {visible(text)}", no_wrap=True, overflow="ellipsis")
        )

    def tell(self, text: str) -> None:
        """Shows a note until the cursor moves."""
        self._said, self._said_at = text, self.lines.cursor
        self.query_one("#note", Static).update(Text(visible(text)))

    def open(self, page: Page, then: Callable[[int | None], None] | None = None) -> None:
        self.app.push_screen(page, then)

    def ask(
        self,
        label: str,
        taken: Callable[[str], None],
        *,
        text: str = "",
        check: Check = lambda text: "",
        typed: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Asks for a line of text. ``taken`` is called with it, unless Escape was pressed."""

        def answered(answer: str | None) -> None:
            if answer is not None:
                taken(answer)

        self.app.push_screen(Prompt(label, text, check=check, typed=typed), answered)

    async def work_out(self, work: Callable[[Stop], T]) -> T | None:
        """The result of ``work``, which runs in a thread. If it raises, shows why and returns
        None."""
        try:
            return await in_thread(work)
        except Cancelled:
            return None
        except (RmqctlError, OSError) as error:
            self.tell(error_text(error))
            return None

    # --- events ----------------------------------------------------------------------------

    @on(Lines.Moved)
    def _moved(self, event: Lines.Moved) -> None:
        if self.lines.source is event.source:
            self.moved(event.number, event.line)

    def moved(self, number: int, line: Line | None) -> None:
        """The cursor has moved to a line; None: it is not read yet."""
        source = self.lines.source
        self.show_state("" if source is None else source.where(number))
        if number != self._said_at:
            self._said = ""
        note = self._said or (line.note if line is not None else "")
        self.query_one("#note", Static).update(Text(visible(note)))

    @on(Lines.Chosen)
    def _chosen(self, event: Lines.Chosen) -> None:
        self.chosen(event.number, event.line)

    def chosen(self, number: int, line: Line) -> None:
        """Enter was pressed on a line."""

    def came_back(self, number: int | None) -> None:
        """Called when a page that goes through the same list is left at this line."""
        if number is not None:
            self.lines.go_to(number)

    @on(Lines.Failed)
    def _failed(self, event: Lines.Failed) -> None:
        self.tell(event.text)

    def action_open_line(self) -> None:
        self.lines.choose()

    def action_back(self) -> None:
        """Goes back to the page before. Does nothing on the first page."""
        if len(self.app.screen_stack) > 2:
            self.dismiss(self.lines.cursor)

    def action_next(self, by: int) -> None:
        self.lines.action_move(by)

    def action_look_again(self) -> None:
        in_background(self, "reload", self._look_again)

    async def _look_again(self) -> None:
        if await self.work_out(self.opened.again):
            self.list_anew(self.lines.cursor)
            self.tell("opened again")

    # --- ways from every page --------------------------------------------------------------

    def action_find(self) -> None:
        where = "" if self.topic is None else f" in {visible(self.topic)}"
        self.ask(f"Key, unique key or message id{where}:", self._find, check=text_problem)

    def _find(self, text: str) -> None:
        from rmqctl.cli.browse.screens.found import FoundPage

        self.open(FoundPage(self.opened, text, self.topic))

    def action_time(self) -> None:
        self.ask(
            "Time (2026-11-22T06:00, epoch ms, or -2h):",
            lambda text: self.go_to_time(time_of(text)),
            check=time_problem,
        )

    def go_to_time(self, time: int) -> None:
        """Goes to the first message with this store time or a later one."""
        self.open_log(None, time=time)

    def action_place(self) -> None:
        self.ask(
            "Physical offset or message id:",
            lambda text: self.open_log(place_of(text)),
            check=place_problem,
        )

    def action_log(self) -> None:
        """Opens the log around the line under the cursor."""
        line = self.lines.current()
        self.open_log(None if line is None else line.place.physical_offset)

    def open_log(self, physical_offset: int | None, *, time: int | None = None) -> None:
        """Opens the log around a place or a time; without both, at its end."""
        from rmqctl.cli.browse.screens.places import LogPage

        self.open(LogPage(self.opened, physical_offset, time=time))

    def action_findings(self) -> None:
        from rmqctl.cli.browse.screens.findings import FindingsPage

        self.open(FindingsPage(self.opened))
