"""Trajectory -> ATIF-v1.5, the newest version that every published reader of ATIF takes.

Task becomes the first user step, every step one of the agent with its calls and what came back. ATIF has no place for
outcome, labels and notes: they stand in the root's `extra` (`task_id`, `reward`, `passed`, `labels`, `meta`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from scout import records
from scout.trajectory import Step, Trajectory

VERSION = "ATIF-v1.5"
TYPED = "action"
"""Name of the call that stands for an action that is text and no call."""


class _Document(msgspec.Struct):
    schema_version: str
    session_id: str
    agent: dict[str, str]
    steps: list[dict[str, Any]]
    extra: dict[str, Any]


def document(run: Trajectory) -> bytes:
    """The run as one ATIF document, on one line."""
    steps: list[dict[str, Any]] = []
    if run.task.text:
        steps.append({"step_id": 1, "source": "user", "message": run.task.text})
    steps += [_step(step, len(steps) + step.index) for step in run.steps]
    version = str(run.meta.get("harness_version") or "unknown")
    agent = {"name": str(run.meta.get("harness") or "unknown"), "version": version}
    if isinstance(run.meta.get("agent_model"), str):
        agent["model_name"] = run.meta["agent_model"]
    extra = {
        "task_id": run.task.id,
        "reward": run.outcome.score,
        "passed": run.outcome.passed,
        "labels": run.labels,
        "meta": run.meta,
    }
    kept = {key: value for key, value in extra.items() if value not in (None, {})}
    return records.dumps(_Document(VERSION, run.id, agent, steps, kept))


def _step(step: Step, number: int) -> dict[str, Any]:
    made: dict[str, Any] = {"step_id": number, "source": "agent", "message": step.thought}
    calls = _calls(step)
    if calls:
        made["tool_calls"] = calls
    if step.observation:
        only = {"source_call_id": calls[0]["tool_call_id"]} if len(calls) == 1 else {}
        made["observation"] = {"results": [{**only, "content": step.observation}]}
    if step.source_ref is not None:
        made["extra"] = {"source_ref": step.source_ref}
    return made


def _calls(step: Step) -> list[dict[str, Any]]:
    """The calls of an action whose lines are all `name {arguments}`; another action is one call that holds its text."""
    calls: list[dict[str, Any]] = []
    for at, line in enumerate(step.action.split("\n") if step.action else (), 1):
        name, _, text = line.partition(" ")
        try:
            arguments = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [{"tool_call_id": f"{step.index}-1", "function_name": TYPED, "arguments": {"text": step.action}}]
        calls.append({"tool_call_id": f"{step.index}-{at}", "function_name": name or TYPED, "arguments": arguments})
    return calls
