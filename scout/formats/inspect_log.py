"""Reader of Inspect logs: `.json`, and `.eval`, a zip with one file a sample.

A sample is a run, named after the log, the sample and the epoch, since a sample is tried once an epoch. Each assistant
message is a step. Texts that the log keeps as attachments are put back. Scores give the outcome: C or a number from 1
passed, I, N or 0 failed, anything between is a score only; scorers that disagree leave the outcome unknown. N is a
verdict, "no answer or refusal", which Inspect counts as 0 among the scored samples; what a scorer left unscored is no
number and stays unknown. The target and the scorers' explanations may hold the answer and are left out. A sample in
which the model never spoke is no run; the first run of the log says which were passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from scout.errors import FormatError, Problem, refuse, shown
from scout.formats.positions import Positions
from scout.formats.run import Call, Recorder, content_text, json_text, outcome_of
from scout.formats.source import HINT, KEPT_BYTES, Record, Source, attempt, decode, decoded, keys
from scout.trajectory import Outcome, Trajectory

LOOKED_FOR = 'an object with "eval", "plan" and "version" (its runs are in "samples"), or a zip with such a header.json'
_ATTACHED = "attachment://"
_GRADES: dict[str, float] = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's own values of correct, partial, incorrect and no answer, with the numbers it counts them as."""
_NAMED = 5

_Content = str | list[Any] | None


class _Call(msgspec.Struct):
    function: str
    arguments: Any = None
    id: str | None = None


class _Error(msgspec.Struct):
    message: str = ""
    type: str = ""


class _Message(msgspec.Struct):
    role: str
    content: _Content = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    function: str | None = None
    error: _Error | None = None


class _Sample(msgspec.Struct):
    id: int | str
    epoch: int = 1
    input: Any = None
    messages: list[msgspec.Raw] = []
    scores: dict[str, Any] | None = None
    attachments: dict[str, Any] = {}
    error: Any = None
    limit: Any = None


class _Whole(_Sample):
    """A sample without mistakes and attachments, decoded at one go."""

    messages: list[_Message] = []  # type: ignore[assignment]


class _Eval(msgspec.Struct):
    task: str = ""
    model: str | None = None


class _Header(msgspec.Struct):
    eval: _Eval
    status: str | None = None


class _Log(msgspec.Struct):
    samples: list[msgspec.Raw] | None = None


def matches(source: Source) -> bool:
    """Whether the file, or the header of the zip, is a log of Inspect."""
    return source.shape in ("object", "zip") and source.members.keys() >= {"eval", "plan", "version"}


def read(source: Source) -> Iterator[Trajectory]:
    """The runs, one a sample. Raises FormatError listing all problems of the file before anything is yielded."""
    problems: list[Problem] = []
    header = decode(source.first, _Header, str(source.path), problems)
    silent: list[str] = []
    spoken = 0
    samples: Iterable[Record] = () if header is None else _samples(source, problems)
    kept: list[Trajectory] = []
    room = KEPT_BYTES
    for record in samples:
        before = len(problems)
        name, run = _run(source, record, header, problems)
        room -= memoryview(record.raw).nbytes
        if run is not None and room >= 0:
            kept.append(run)
        spoken += run is not None
        if run is None and len(problems) == before:
            silent.append(name)
    if not spoken and not problems:
        found = f"{len(silent)} samples and no message of the model (status {header.status if header else None})"
        problems.append(Problem(str(source.path), "samples", found, "at least one assistant message"))
    if problems:
        refuse(problems, hint=HINT, kind=FormatError)
    again = (_run(source, record, header, problems)[1] for record in _samples(source, problems))
    for run in kept if room >= 0 else again:
        if run is not None:
            yield _with_note(run, silent)
            silent = []


def _with_note(run: Trajectory, silent: list[str]) -> Trajectory:
    if not silent:
        return run
    more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
    note = f"samples of this log in which the model never spoke: {', '.join(silent[:_NAMED])}{more}"
    return msgspec.structs.replace(run, meta={**run.meta, "left_out": [*run.meta["left_out"], note]})


def _samples(source: Source, problems: list[Problem]) -> Iterator[Record]:
    """Every sample: a member of the zip, or an item of the log's list."""
    if source.shape == "zip":
        yield from source.records()
        return
    log = decode(source.data, _Log, str(source.path), problems)
    samples: list[msgspec.Raw] = (log.samples if log else None) or []
    for number, raw in enumerate(samples):
        yield Record(f"{source.path}:samples[{number}]", f"{source.path.name}:{number}", number, raw)


def _run(
    source: Source, record: Record, header: _Header | None, problems: list[Problem]
) -> tuple[str, Trajectory | None]:
    """Name of the sample and its run; None when the model never spoke or something is wrong with it."""
    attached = _ATTACHED.encode() in bytes(record.raw)
    sample: _Sample | None = None if attached else attempt(record.raw, _Whole)
    sample = sample or decode(record.raw, _Sample, record.where, problems)
    if sample is None or header is None:
        return "", None
    name = f"{sample.id}:{sample.epoch}"
    before = len(problems)
    if attached:
        sample.messages = [_put_back(raw, sample.attachments) for raw in sample.messages]
    messages = decoded(sample.messages, _Message, lambda at: f"{record.where}:messages[{at}]", problems)
    if len(problems) > before:
        return name, None
    recorder, positions = Recorder(record.ref), Positions()
    for position, message in enumerate(messages):
        _record(recorder, position, message)
        positions.note(position, recorder.steps)
    if not recorder.steps:
        return name, None
    if sample.error:
        recorder.warnings.append(f"the sample ended with an error: {shown(_text(sample.error, 'message'))}")
    if sample.limit:
        recorder.warnings.append(f"the sample was stopped by a limit: {shown(_text(sample.limit, 'type'))}")
    unread = [key for key in keys(record.raw) if key not in _Sample.__struct_fields__]
    recorder.not_followed.append(f"keys beside the messages: {', '.join(unread[:12])}")
    outcome = _outcome(sample.scores or {}, recorder)
    meta: dict[str, Any] = {"format": "inspect", "source_file": record.where, "harness": "inspect"}
    meta |= {"domain": header.eval.task, "messages": positions.messages, "epoch": sample.epoch}
    if header.eval.model:
        meta["agent_model"] = header.eval.model
    run = recorder.trajectory(
        f"{source.stem}:{name}",
        task_id=f"{header.eval.task}:{sample.id}",
        outcome=outcome,
        meta=meta,
        task_text=sample.input if isinstance(sample.input, str) else "",
    )
    return name, run


def _put_back(raw: msgspec.Raw, attachments: dict[str, Any]) -> msgspec.Raw:
    """The message with the texts that are kept as attachments in their places."""
    if _ATTACHED.encode() not in bytes(raw):
        return raw
    return msgspec.Raw(msgspec.json.encode(_filled(decode(raw, Any, "", []), attachments)))


def _filled(value: Any, attachments: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith(_ATTACHED):
        kept = attachments.get(value.removeprefix(_ATTACHED))
        return kept if isinstance(kept, str) else value
    if isinstance(value, list):
        return [_filled(item, attachments) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, attachments) for key, item in value.items()}
    return value


def _record(recorder: Recorder, position: int, message: _Message) -> None:
    text = content_text(_readable(message.content), recorder.left_out)
    if message.role == "assistant":
        calls = [Call(call.function, json_text(call.arguments), call.id) for call in message.tool_calls or []]
        recorder.turn(position, text, calls)
    elif message.role == "tool":
        if message.error is not None:
            text = "\n".join(filter(None, (text, f"{message.error.type}: {message.error.message}")))
        recorder.result(text, message.tool_call_id, name=message.function or "")
    else:
        recorder.context(text)


def _readable(content: _Content) -> _Content:
    """Reasoning as text; it is a part of its own kind, and may be encrypted."""
    if not isinstance(content, list):
        return content
    return [
        part["reasoning"]
        if isinstance(part, dict) and part.get("type") == "reasoning" and isinstance(part.get("reasoning"), str)
        else part
        for part in content
    ]


def _text(value: Any, key: str) -> str:
    """A member of an object, or whatever stands in its place, as text."""
    return str(value.get(key, value) if isinstance(value, dict) else value)


def _outcome(scores: dict[str, Any], recorder: Recorder) -> Outcome:
    """The scorers' verdict where they agree, and the score where there is one scorer."""
    outcomes = []
    for name, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        number = _GRADES.get(value) if isinstance(value, str) else value
        if value == "N":
            recorder.warnings.append(f"scorer {name!r} gave N, no answer or refusal, which Inspect counts as 0")
        if isinstance(number, bool):
            outcomes.append(Outcome(passed=number))
        elif isinstance(number, int | float):
            outcomes.append(outcome_of(float(number)))
        else:
            outcomes.append(Outcome())
            recorder.warnings.append(f"scorer {name!r} gave {shown(str(value))}, which says nothing about passing")
    verdicts = {outcome.passed for outcome in outcomes}
    if len(verdicts) > 1:
        recorder.warnings.append(f"the scorers do not agree: {', '.join(scores)}; the outcome is unknown")
    if len(outcomes) == 1:
        return outcomes[0]
    return Outcome(passed=verdicts.pop() if len(verdicts) == 1 else None)
