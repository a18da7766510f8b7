"""The keys."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "everywhere",
        (
            ("enter", "open what the cursor stands on"),
            ("esc  ←  h", "back to where you came from"),
            ("q", "quit"),
            ("↑ ↓  k j", "one line; also n and p"),
            ("space  b", "one page; also PgDn and PgUp"),
            ("g  G", "first, last; also Home and End"),
            ("/", "narrow the topics by name; elsewhere as f"),
            ("f", "find a key, a unique key or a message id"),
            ("t", "go to a time"),
            (":", "go to an offset, or a message id"),
            ("l", "the log around the cursor"),
            ("v", "verify: the findings, worst first"),
            ("r", "look again: what a broker has written since"),
            ("?", "this page"),
        ),
    ),
    (
        "a message",
        (
            ("n  p", "the next, the one before"),
            ("tab", "text, JSON, hex in turn; also 1 2 3"),
            ("x", "every byte, by the fields of its layout"),
        ),
    ),
    (
        "findings, searches",
        (
            ("x", "stop"),
            ("s", "search: read the whole log, bodies too"),
            ("r", "findings: verify again"),
        ),
    ),
)


class HelpScreen(ModalScreen[None]):
    """Shows all keys. ``q``, ``?`` and Escape leave the screen."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 64; max-width: 100%; height: auto; max-height: 100%;
                                  background: $panel; padding: 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "leave", "Leave", key_display="esc")
    ]

    def compose(self) -> ComposeResult:
        text = Text()
        for title, keys in KEYS:
            text.append(f"{title}\n", "bold")
            for key, meaning in keys:
                text.append(f"  {key:<10} ", "bold cyan")
                text.append(f"{meaning}\n")
        text.append("Nothing here changes the store.", "italic")
        with VerticalScroll():
            yield Static(text)

    def action_leave(self) -> None:
        self.dismiss(None)
