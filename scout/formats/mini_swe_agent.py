"""Reader of mini-swe-agent's `.traj.json` files: a bare list of messages, `mini-swe-agent-1` and `mini-swe-agent-1.1`.

Each answer of the model is a step. In the text form thought and action are one text: the action is its only fenced
block of bash, as the harness takes it; an answer with none or several is a thought alone. In the tool form (version 2)
the calls are the action. What came back has the role `user`, `tool` or, from the Responses API, no role at all. The
message with which the harness ends a run is no step; what was submitted is what the last command returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from scout.errors import Problem, shown
from scout.formats.outcomes import outcome_beside, run_name
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, content_text, json_text
from scout.formats.source import Raw, Record, Source, attempt, build_all, decode, decoded, items, keys, text_of
from scout.formats.trial import trial_of
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = (
    'an object with "messages" and "trajectory_format": "mini-swe-agent-..." (or "info" with "exit_status" and '
    '"submission"), or a list of messages with bash blocks and <returncode> answers'
)
VERSIONS = ("mini-swe-agent-1", "mini-swe-agent-1.1", "mini-swe-agent-2")
_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)[ \t]*\n(.*?)\n?```", re.DOTALL)
_ANSWER = ("<returncode>", "<exception>", "<output>")

_Content = str | list[Any] | None


class _Function(msgspec.Struct):
    name: str
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Extra(msgspec.Struct):
    exit_status: str | None = None
    interrupt_type: str | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    type: str | None = None
    object: str | None = None
    content: _Content = None
    reasoning_content: _Content = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    extra: _Extra | None = None
    output: Any = None
    call_id: str | None = None


class _Item(msgspec.Struct):
    """Part of an answer in the Responses API."""

    type: str = ""
    content: _Content = None
    summary: _Content = None
    name: str = ""
    arguments: Any = None
    call_id: str | None = None


class _Model(msgspec.Struct):
    model_name: str | None = None


class _Config(msgspec.Struct):
    model: _Model | None = None


class _Info(msgspec.Struct):
    exit_status: str | None = None
    config: _Config | None = None


class _Run(msgspec.Struct):
    messages: list[msgspec.Raw]
    info: _Info | None = None
    instance_id: str | None = None
    trajectory_format: str | None = None


class _Whole(_Run, kw_only=True):
    """A run without mistakes, decoded at one go; the messages of another are decoded one by one, to name them."""

    messages: list[_Message]  # type: ignore[assignment]


def matches(source: Source) -> bool:
    """Whether the file is a run of mini-swe-agent."""
    if source.shape == "array":
        return _is_bare(source)
    found = source.members
    if "messages" not in found:
        return False
    named = (text_of(found.get("trajectory_format")) or "").startswith("mini-swe-agent")
    return named or keys(found.get("info", b"")).keys() >= {"exit_status", "submission"}


def _is_bare(source: Source) -> bool:
    """Whether a list of messages has the first answer and what came back in the words of this harness."""
    if text_of(source.members.get("role")) != "system" or b"```" not in source.data:
        return False
    first = [attempt(raw, _Message) for raw in items(source.data)[:4]]
    if [message and message.role for message in first[1:3]] != ["user", "assistant"]:
        return False
    asked, seen = (_plain(message) for message in [*first, None][2:4])
    return bool(_BLOCK.search(asked)) and ("mswea_bash_command" in asked or seen.lstrip().startswith(_ANSWER))


def _plain(message: _Message | None) -> str:
    content = message.content if message else None
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part.get("text", "") if isinstance(part, dict) else part or "") for part in parts)


def read(source: Source) -> Iterator[Trajectory]:
    """The runs. Raises FormatError listing all problems of the file."""
    if source.shape == "array" and "role" in source.members:
        data: Raw = b'{"messages":' + source.data + b"}"
        source = msgspec.structs.replace(source, shape="object", first=data, data=bytes(data))

    def build(record: Record, problems: list[Problem]) -> Iterator[Trajectory]:
        run = attempt(record.raw, _Whole) or decode(record.raw, _Run, record.where, problems)
        if run is None:
            return
        before = len(problems)
        messages = decoded(run.messages, _Message, lambda at: f"{record.where}:{at}", problems)
        recorder = _Walk(record.ref, record.where, problems)
        for at, message in enumerate(messages):
            recorder.take(at, message)
        if len(problems) > before:
            return
        if not recorder.steps:
            problems.append(Problem(record.where, "messages", "no message of the agent", "at least one"))
            return
        yield _trajectory(source, record, run, recorder)

    return build_all(source, build)


class _Walk(Recorder):
    """The messages in file order."""

    def __init__(self, ref: str, where: str, problems: list[Problem]) -> None:
        super().__init__(ref)
        self.positions = Positions()
        self.status = ""
        self._where = where
        self._problems = problems
        self._asked = False

    def take(self, at: int, message: _Message) -> None:
        """One message."""
        extra = message.extra or _Extra()
        if message.object == "response":
            self._respond(at, message)
        elif message.type == "function_call_output":
            self.result(self._text(message.output), message.call_id)
            self._asked = False
        elif message.role == "assistant":
            self._answer(at, message)
        elif message.role == "tool":
            self.result(self._text(message.content), message.tool_call_id)
            self._asked = False
        elif message.role == "exit":
            self._end(message, extra)
        elif self._asked and not extra.interrupt_type:
            self.result(self._text(message.content))
            self._asked = False
        else:
            self.context(self._text(message.content))
        self.positions.note(at, self.steps)

    def _answer(self, at: int, message: _Message) -> None:
        text = "\n".join(part for part in map(self._text, (message.reasoning_content, message.content)) if part)
        calls = [Call(one.function.name, json_text(one.function.arguments), one.id) for one in message.tool_calls or []]
        if not calls:
            text, calls = _split(text)
        self.turn(at, text, calls)
        self._asked = bool(calls)

    def _respond(self, at: int, message: _Message) -> None:
        """An answer in the Responses API: reasoning, text and calls are items of `output`."""
        place = f"{self._where}:{at}:output"
        items: list[_Item] = decode(msgspec.json.encode(message.output), list[_Item], place, self._problems) or []
        texts, calls = [], []
        for item in items:
            if item.type == "function_call":
                calls.append(Call(item.name, json_text(item.arguments), item.call_id))
            else:
                texts += [self._text(item.summary), self._text(item.content)]
        self.turn(at, "\n".join(text for text in texts if text), calls)
        self._asked = bool(calls)

    def _end(self, message: _Message, extra: _Extra) -> None:
        """How the run ended. Of a submission the text is what the last command returned."""
        self.status = extra.exit_status or ""
        if self.status == "Submitted" and self._asked:
            self.result(self._text(message.content))
        else:
            self.left_out["messages of the harness at the end of the run"] += 1

    def _text(self, content: Any) -> str:
        known = content if content is None or isinstance(content, str | list) else json_text(content)
        return content_text(known, self.left_out)


def _split(text: str) -> tuple[str, list[Call]]:
    """Thought and action of an answer in text; the harness takes exactly one block."""
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) != 1:
        return text, []
    (block,) = blocks
    rest = (text[: block.start()].strip(), text[block.end() :].strip())
    return "\n".join(part for part in rest if part), [Call("", block[1].strip())]


def _trajectory(source: Source, record: Record, run: _Run, walk: _Walk) -> Trajectory:
    info = run.info or _Info()
    status = info.exit_status or walk.status
    if status and status != "Submitted":
        walk.warnings.append(f"the harness stopped this run: {shown(status)}")
    if run.trajectory_format and run.trajectory_format not in VERSIONS:
        walk.warnings.append(f"{shown(run.trajectory_format)} is not a known version; what is known of it was read")
    unread = [key for key in keys(record.raw) if key not in ("messages", "trajectory_format", "instance_id")]
    if unread:
        walk.not_followed.append(f"keys beside the messages: {', '.join(unread[:12])}")
    name = source.stem if record.number is None else f"{source.stem}:{record.number}"
    trial = trial_of(source.path)
    outcome = trial.outcome
    if outcome == Outcome():
        outcome = outcome_beside(source.path, run.instance_id or source.stem)
    meta: dict[str, Any] = {"format": "mini_swe_agent", "source_file": record.where, "harness": "mini-swe-agent"}
    meta["messages"] = walk.positions.messages
    model = info.config.model.model_name if info.config and info.config.model else None
    more = {"agent_model": model, "exit_status": status, "format_version": run.trajectory_format}
    meta |= {key: value for key, value in more.items() if value}
    return walk.trajectory(
        trial.trial_name or run_name(source.path, name),
        task_id=trial.task_name or run.instance_id,
        outcome=outcome,
        meta=meta,
    )
