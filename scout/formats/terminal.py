"""A terminal that remembers: what a program printed -> the lines a person could have read, with redraws undone.

pyte interprets the control sequences. Lines that leave the screen are kept as text, wrapped ones put together again;
what a full-screen program such as vim draws on the other screen is gone when it ends, as in a real terminal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyte

CHARACTERS_LIMIT = 50_000_000
"""Characters kept of one recording; a hundred times the longest run we know. Later lines are counted and dropped."""
SIZE_LIMIT = 1000
"""Most columns or rows; tmux and asciinema record at most a few hundred."""
_ROWS_OF_A_LINE = 100_000
_OTHER_SCREEN = {47, 1047, 1049}
"""Private modes in which a program draws on a screen of its own."""


class Line(NamedTuple):
    """One line as it was printed, however many rows it took."""

    text: str
    at: int
    """Event during which it was begun."""


class _Screen(pyte.Screen):
    """Rows that scroll away or are cleared become `lines_out`; the rest works as in pyte."""

    def __init__(self, columns: int, lines: int) -> None:
        self.at = 0
        self.lines_out: list[Line] = []
        self.kept_characters = 0
        self.dropped = 0
        self.on_other = False
        """Whether a program draws on the other screen; the main one was put into `lines_out` before."""
        self._born: dict[int, int] = {}
        self._wrapped: set[int] = set()
        self._drawing = False
        self._pending: list[str] = []
        self._pending_at = 0
        super().__init__(columns, lines)

    def draw(self, data: str) -> None:
        self._born.setdefault(self.cursor.y, self.at)
        self._drawing = True
        super().draw(data)
        self._drawing = False
        self._born.setdefault(self.cursor.y, self.at)

    def index(self) -> None:
        if self._drawing:
            self._wrapped.add(self.cursor.y)
        else:
            self._wrapped.discard(self.cursor.y)
        whole = self.margins is None
        if whole and self.cursor.y == self.lines - 1:
            self._keep(0)
            self._born = {row - 1: at for row, at in self._born.items() if row}
            self._wrapped = {row - 1 for row in self._wrapped if row}
        super().index()

    def reset(self) -> None:
        if self._born:
            self.flush()
        super().reset()

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        if how in (2, 3) or (how == 0 and self.cursor.y == self.cursor.x == 0):
            self.flush()
        super().erase_in_display(how, *args, **kwargs)

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        super().set_mode(*modes, **kwargs)
        if kwargs.get("private") and _OTHER_SCREEN.intersection(modes) and not self.on_other:
            self.flush()
            self.buffer.clear()
            self.on_other = True
            self._born, self._wrapped = {}, set()

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and _OTHER_SCREEN.intersection(modes) and self.on_other:
            self.buffer.clear()
            self.cursor_position()
            self._born, self._wrapped = {}, set()
            self.on_other = False

    def flush(self) -> None:
        """Everything on the screen becomes lines; of the other screen nothing does."""
        for row in range(max(self._born, default=-1) + 1):
            self._keep(row)
        if self._pending:
            self._put()
        self._born, self._wrapped = {}, set()

    def shown(self) -> str:
        """The rows of the screen as they stand."""
        return "\n".join(self._text(row).rstrip() for row in range(self.lines)).rstrip()

    def _text(self, row: int) -> str:
        cells = self.buffer[row]
        return "".join(cells[column].data for column in range(self.columns))

    def _keep(self, row: int) -> None:
        if self.on_other:
            return
        if not self._pending:
            self._pending_at = self._born.get(row, self.at)
        self._pending.append(self._text(row))
        if row not in self._wrapped or len(self._pending) >= _ROWS_OF_A_LINE:
            self._put()

    def _put(self) -> None:
        text = "".join(self._pending).rstrip()
        self.kept_characters += len(text)
        if self.kept_characters <= CHARACTERS_LIMIT:
            self.lines_out.append(Line(text, self._pending_at))
        else:
            self.dropped += 1
        self._pending = []


class Terminal:
    """Takes output as it came and gives the lines of it."""

    def __init__(self, columns: int, rows: int) -> None:
        """columns, rows: 1 to SIZE_LIMIT."""
        self._screen = _Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)
        self.misread = 0
        """Control sequences that pyte could not take; the rest of their event is lost."""

    def feed(self, text: str, at: int) -> None:
        """Output of event number `at`."""
        self._screen.at = at
        try:
            self._stream.feed(text)
        except Exception:  # pyte's handlers raise whatever odd arguments lead to, such as TypeError
            self.misread += 1
            self._screen._drawing = False
            self._stream = pyte.Stream(self._screen)

    @property
    def dropped(self) -> int:
        """Lines above CHARACTERS_LIMIT."""
        return self._screen.dropped

    @property
    def in_full_screen(self) -> bool:
        """Whether a program such as vim has taken the whole screen."""
        return self._screen.on_other

    def shown(self) -> str:
        """The screen as it stands."""
        return self._screen.shown()

    def taken(self) -> list[Line]:
        """Lines since the last call, those on the screen included; the screen's come only once."""
        self._screen.flush()
        if not self._screen.on_other:
            self._screen.erase_in_display(2)
            self._screen.cursor_position()
        lines, self._screen.lines_out = self._screen.lines_out, []
        return lines
