"""Events of the OpenHands software-agent SDK, which the OpenHands reader records as steps.

Actions of one model response (`llm_response_id`) are one step. What came back is named by the id of the call, because a
file cut in the middle may hold a result without its action.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, content_text, json_text

_RESULTS = {"ObservationEvent", "AgentErrorEvent", "UserRejectObservation"}


class _ToolCall(msgspec.Struct):
    name: str
    arguments: Any = None


class _Seen(msgspec.Struct):
    content: str | list[Any] | None = None


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None


class SdkEvent(msgspec.Struct):
    """One event; each kind fills some of the fields."""

    kind: str
    source: str | None = None
    thought: str | list[Any] | None = None
    reasoning_content: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_call: _ToolCall | None = None
    action: Any = None
    llm_response_id: str | None = None
    llm_message: _Message | None = None
    observation: _Seen | None = None
    error: str | None = None
    rejection_reason: str | None = None


def record_sdk(recorder: Recorder, positions: Positions, found: list[tuple[int, SdkEvent]]) -> None:
    """Record every event; kinds that are no action, result or message are counted as left out."""
    response: str | None = None
    for place, event in found:
        if event.kind == "ActionEvent":
            texts = _texts(event.reasoning_content, content_text(event.thought, recorder.left_out))
            if response is not None and event.llm_response_id == response:
                recorder.extend(place, texts, [_call(event)])
            else:
                recorder.turn(place, texts, [_call(event)])
            response = event.llm_response_id
        elif event.kind in _RESULTS:
            seen = event.observation.content if event.observation else event.error or event.rejection_reason
            recorder.result(content_text(seen, recorder.left_out), event.tool_call_id, name=event.tool_name or "")
        elif event.kind == "MessageEvent":
            message = event.llm_message or _Message()
            text = content_text(message.content, recorder.left_out)
            if event.source == "agent":
                recorder.turn(place, _texts(message.reasoning_content, text), ())
            else:
                recorder.context(text)
            response = None
        else:
            recorder.left_out[f"{event.kind}s"] += 1
        positions.note(place, recorder.steps)


def _call(event: SdkEvent) -> Call:
    if event.tool_call is not None:
        return Call(event.tool_call.name, json_text(event.tool_call.arguments), event.tool_call_id)
    return Call(event.tool_name or "", json_text(event.action), event.tool_call_id)


def _texts(reasoning: str | None, text: str) -> str:
    """Reasoning and text; some models repeat the reasoning inside the text."""
    reasoning = reasoning or ""
    return text if reasoning.strip() in text else "\n".join(filter(None, (reasoning, text)))
