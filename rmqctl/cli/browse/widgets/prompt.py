"""``Prompt``: asks for one line of text at the bottom of the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rmqctl.cli.text import visible

#: Checks what was typed, and returns what is wrong with it; empty: it is accepted.
Check = Callable[[str], str]


class Prompt(ModalScreen[str | None]):
    """Its result is the typed text, or None after Escape. If ``check`` refuses a text, the prompt
    stays and shows why. ``typed`` is called at every change."""

    DEFAULT_CSS = """
    Prompt { background: transparent; align: left bottom; }
    Prompt > Vertical { height: auto; background: $panel; padding: 0 1; }
    Prompt Static { height: auto; max-height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave", priority=True)]

    def __init__(
        self,
        label: str,
        text: str = "",
        *,
        check: Check = lambda text: "",
        typed: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__()
        self._label = label
        self._text = text
        self._check = check
        self._typed = typed

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._label, id="label", markup=False)
            yield Input(self._text, select_on_focus=True, compact=True)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._typed(event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        wrong = self._check(event.value)
        if wrong:
            self.query_one("#label", Static).update(visible(wrong))
        else:
            self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)
