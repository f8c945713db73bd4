"""What a document in ATIF holds, as far as a reader needs it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Content = str | list[Any] | None


class ToolCall(msgspec.Struct):
    function_name: str
    arguments: Any = None
    tool_call_id: str | None = None


class Result(msgspec.Struct):
    source_call_id: str | None = None
    content: Content = None
    subagent_trajectory_ref: Any = None


class Observation(msgspec.Struct):
    results: list[Result] | None = None


class Entry(msgspec.Struct):
    source: Literal["user", "agent", "system"]
    step_id: int | str | None = None
    timestamp: str | None = None
    message: Content = None
    reasoning_content: Content = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    is_copied_context: bool | None = None


class Agent(msgspec.Struct):
    name: str | None = None
    version: str | None = None
    model_name: str | None = None
    extra: Any = None


class Document(msgspec.Struct):
    schema_version: str
    steps: list[msgspec.Raw]
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent | None = None
    continued_trajectory_ref: Any = None
    subagent_trajectories: list[msgspec.Raw] | None = None
    extra: Any = None


class Whole(Document, kw_only=True):
    """A document without mistakes, decoded at one go; the entries of another are decoded one by one, to name them."""

    steps: list[Entry]  # type: ignore[assignment]
