"""Where a message of the original file went: the map that labels given by message index need.

Readers of message lists write `meta["messages"]`: for every step, in order, the 0-based indices of the original
messages it was made of. The first is the agent's own message, the others are what came back after it.
"""

from __future__ import annotations

from scout.trajectory import Trajectory


def step_of_message(run: Trajectory, index: int) -> int | None:
    """1-based step that holds this original message, or None when no step does (the task, the system prompt).

    index: 0-based position in the original list, whatever base the label's source counts from.
    None as well for a run whose reader keeps no `meta["messages"]`.
    """
    return next((step for step, messages in enumerate(run.meta.get("messages", ()), 1) if index in messages), None)


class Positions:
    """Collects `meta["messages"]` while a reader walks the messages in file order."""

    def __init__(self) -> None:
        self.messages: list[list[int]] = []

    def note(self, index: int, steps: int) -> None:
        """Message `index` was read and the run has `steps` steps now; before the first step it belongs to none."""
        if steps > len(self.messages):
            self.messages.append([])
        if self.messages:
            self.messages[-1].append(index)
