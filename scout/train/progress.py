"""What a training run says: metrics.jsonl, a line with the time left on stderr, and a stop that can be resumed."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from scout.train.folder import RunFolder, append, truncate_after

_QUIET_SECONDS = 20.0
"""A log file that is not a terminal gets at most one progress line in this time."""


def say(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


class Progress(TrainerCallback):
    """Writes every logged figure to metrics.jsonl and keeps one line on stderr up to date."""

    def __init__(self, folder: RunFolder, stage: str) -> None:
        self.folder, self.stage = folder, stage
        self.begun = self.spoke = 0.0
        self.first = 0
        self.shown: dict[str, float] = {}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Forgets what an interrupted run logged after its last checkpoint."""
        self.begun, self.first = time.monotonic(), state.global_step
        for log in (self.folder.metrics, self.folder.samples):
            truncate_after(log, state.global_step if state.global_step else -1)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """One object a logged step; a figure that is not finite becomes null, which JSON can hold."""
        figures = {key: _figure(value) for key, value in (logs or {}).items()}
        if state.is_world_process_zero:
            append(self.folder.metrics, {"step": state.global_step, **figures})
        for key in ("loss", "reward", "eval_loss"):
            if isinstance(figures.get(key), float):
                self.shown[key] = figures[key]

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Says how far the run is and how long it will still take."""
        if state.is_world_process_zero:
            self._speak(state, last=state.global_step >= state.max_steps)

    def _speak(self, state: TrainerState, *, last: bool) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if not last and now - self.spoke < (0.2 if terminal else _QUIET_SECONDS):
            return
        self.spoke = now
        pace = (now - self.begun) / max(1, state.global_step - self.first)
        left = clock(pace * (state.max_steps - state.global_step))
        figures = "".join(f", {key} {value:.4g}" for key, value in self.shown.items())
        line = f"{self.stage}: step {state.global_step} of {state.max_steps}, {left} left{figures}"
        print(f"\r\x1b[K{line}" if terminal else line, end="\n" if last or not terminal else "", file=sys.stderr)
        sys.stderr.flush()


def clock(seconds: float) -> str:
    """A span of time as 42 s, 3:05 min or 2:10 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def _figure(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value


class Stop(TrainerCallback):
    """Ends training after the current step, with a checkpoint, once somebody asked for it."""

    def __init__(self) -> None:
        self.asked = False

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Asks the trainer to save and stop."""
        if self.asked:
            control.should_save = control.should_training_stop = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this holds, Ctrl-C (or SIGTERM) is kept until the step is done; a second one stops at once.

        Raises KeyboardInterrupt at the end when the run was stopped.
        """

        def handle(_: int, __: FrameType | None) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True
            say("stopping after this step; press Ctrl-C again to stop at once. Go on later with --resume.")

        before = {kind: signal.signal(kind, handle) for kind in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)
        if self.asked:
            raise KeyboardInterrupt
