"""Faults that can be put into a good run: for each kind, the places in a run where it is a fault for certain.

Everything that a fault says is the run's own: a step or a sentence of it in another place, or a value of it in another
value's place. Each finder gives candidates; a place where the fault could be harmless is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from data_prep import commands
from scout.trajectory import Step, Trajectory

SHOWN_CHARACTERS = 100
"""At most this much of the run is quoted in a reason."""
NEAR_CHARACTERS = 30
"""A word this close before a value is what the value is about."""

_FILE = re.compile(
    r"(?<![\w./:*-])(?:[\w.-]*/)*[\w-]+\.(?:py|ipynb|js|jsx|ts|tsx|java|kt|scala|c|cc|cpp|h|hpp|rs|go|rb|php|sh|pl|r|R|m|"
    r"sql|html|css|xml|json|jsonl|ya?ml|toml|ini|cfg|conf|md|rst|txt|csv|tsv|log|lock|gradle|tex|fasta|pdf|png|jpg|db)"
    r"(?![\w/-]|\.\w)"
)
_TOKEN = re.compile(r"(?<![\w./-])\w[\w-]{4,40}(?![\w./-]\w)")
_DISTINCTIVE = re.compile(r"[a-z_-]*\d+[a-z]+[\w-]*|\w+_\d{4,}|\d{5,}", re.IGNORECASE)
_COMMON = re.compile(r"x86|0{3}|6553[56]|(?:19|20)\d\d|1?2345|32768|32767|99999|^\d+[a-z]+$", re.IGNORECASE)
"""Numbers and names that come to everybody's mind."""
_NUMBER = re.compile(r"(?<![\w.,:/-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w:/-]|[.,]\d)")
_MONTH = re.compile(r"\b(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]* $", re.IGNORECASE)
_WORD = re.compile(
    r"\b(?!(?:from|have|with|that|this|than|about|into|over|line|step|page|until|only|were|each)\b)[a-z]{4,}", re.I
)
"""What a number can be about."""
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?=\w)[^.!?\n]*)*[.!?\n]?")
_FAILURE = re.compile(
    r"\bFAIL(?:ED|URES?)?\b|\bTraceback \(most recent|\b[1-9]\d* (?:failed|failures?|errors?)\b|\btests? failed\b"
)
_PASSED = re.compile(
    r"\b(?:tests?|checks?|cases?)\b[^.!?\n]{0,40}\b(?:pass(?:es|ed)?|succeed(?:s|ed)?)\b"
    r"|\b(?:works|working) (?:correctly|as expected|perfectly)\b|\bverified\b",
    re.IGNORECASE,
)
_DONE = re.compile(r"\b(?:has|have) been\b|\bsuccessfully\b|\bI(?:'ve| have)\b", re.IGNORECASE)
_NOT_SAID = re.compile(
    r"\?|\b(?:if|whether|should|would|could|might|let me|let's|need|ensure|make sure|until|so that|see|not|\w+n't|will|"
    r"I'll|before|try|once|after|unless|when|want|must|please|fail\w*)\b",
    re.IGNORECASE,
)
"""In a sentence with one of these nothing is claimed, or not for certain."""


class Fault(NamedTuple):
    """A run up to and with its fault."""

    steps: tuple[Step, ...]
    """Their `index` is not yet counted anew."""
    came_from: tuple[int, ...]
    """For each of them the step of the original run that it was or was made of."""
    reason: str


Finder = Callable[[Trajectory], Iterator[Callable[[], Fault | None]]]
"""Gives places; each is worked out when it is called, and is None when a closer look finds it harmless."""


def _up_to(run: Trajectory, last: int, fault: Step, source: int, reason: str) -> Fault:
    """The first `last` steps, then the fault, which was made of step `source`."""
    return Fault((*run.steps[:last], fault), (*range(1, last + 1), source), reason)


def _unanswered(step: Step) -> Step:
    """The step without what came back: what an action returns that was never run is not known."""
    return msgspec.structs.replace(step, observation="")


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS].rstrip()} ..."


def _text(step: Step) -> str:
    return f"{step.thought}\n{step.action}\n{step.observation}"


def _sentences(text: str) -> list[str]:
    return [sentence for sentence in _SENTENCE.findall(text) if sentence.strip()]


def _claims(pattern: re.Pattern[str], thought: str) -> str | None:
    """The first sentence that claims such a thing, or None where one of them is in doubt."""
    found = [sentence for sentence in _sentences(thought) if pattern.search(sentence)]
    return found[0] if found and not any(_NOT_SAID.search(sentence) for sentence in found) else None


# A step again, right after it told everything


def repeated_command(run: Trajectory) -> Iterator[Callable[[], Fault | None]]:
    """A step again, word for word: it only reads, has just shown its result, and the run repeats it nowhere."""
    actions = [step.action.strip() for step in run.steps]
    for at, step in enumerate(run.steps, 1):
        action = actions[at - 1]
        if not step.observation.strip() or actions.count(action) > 1 or not commands.reads_only(action):
            continue
        reason = f"It does the same as step {at} again, whose result is in view: {_quoted(action)}"
        yield lambda at=at, step=step, reason=reason: _up_to(run, at, step, at, reason)  # type: ignore[misc]


# A claim of success where there is none


def fake_success(run: Trajectory) -> Iterator[Callable[[], Fault | None]]:
    """The run's own claim of success, made after a failed test, before any test, or before the call it speaks of."""
    yield from _passed_too_early(run)
    yield from _done_too_early(run)


def _passed_too_early(run: Trajectory) -> Iterator[Callable[[], Fault | None]]:
    fails = [_failure(step) for step in run.steps]
    begun = next((at for at, step in enumerate(run.steps, 1) if commands.works(step.action)), len(run.steps))
    for at, step in enumerate(run.steps, 1):
        claim = _claims(_PASSED, step.thought)
        if claim is None:
            continue
        for last in range(1, at - 1):
            if failure := fails[last - 1]:
                reason = f"It claims success ({_quoted(claim)}), but step {last} shows: {_quoted(failure)}"
            elif last < begun < at:
                reason = f"It claims success ({_quoted(claim)}), but nothing was written or tested so far."
            else:
                continue
            yield lambda last=last, step=step, at=at, reason=reason: _up_to(  # type: ignore[misc]
                run, last, _unanswered(step), at, reason
            )


def _failure(step: Step) -> str | None:
    """The first line in which a test says that it failed."""
    if not commands.tests(step.action):
        return None
    return next((line for line in step.observation.splitlines() if _FAILURE.search(line)), None)


def _done_too_early(run: Trajectory) -> Iterator[Callable[[], Fault | None]]:
    calls = [commands.changes(step.action) for step in run.steps]
    for at in range(3, len(run.steps) + 1):
        step, call = run.steps[at - 1], calls[at - 2]
        if call is None or call in calls[: at - 2] or step.action.strip():
            continue
        name, verb = call
        claim = _claims(_DONE, step.thought)
        if claim is None or verb[:5].casefold() not in claim.casefold():
            continue
        reason = f"It claims that something was done ({_quoted(claim)}), but {name} was never called."
        yield lambda at=at, step=step, reason=reason: _up_to(  # type: ignore[misc]
            run, at - 2, _unanswered(step), at, reason
        )


# An action on another file than its thought names


def wrong_file(run: Trajectory) -> Iterator[Callable[[], Fault | None]]:
    """An action that names one file, as its thought does, made to name another that was seen before."""
    seen = set(_FILE.findall(run.task.text))
    for at, step in enumerate(run.steps, 1):
        files = set(_FILE.findall(step.action))
        for name in sorted(files):
            base, ending = _base(name), name.rpartition(".")[2]
            others = [
                other
                for other in sorted(seen)
                if other.rpartition(".")[2] == ending and _base(other) not in step.thought and _base(other) != base
                and base not in other and _base(other) not in step.action
            ]  # fmt: skip
            if base in step.thought:
                for other in others:
                    yield lambda at=at, name=name, other=other: _on_another_file(run, at, name, other)  # type: ignore[misc]
        seen |= set(_FILE.findall(_text(step)))


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _on_another_file(run: Trajectory, at: int, name: str, other: str) -> Fault:
    step = run.steps[at - 1]
    action = _FILE.sub(lambda match: other if match.group(0) == name else match.group(0), step.action)
    reason = f"Its thought speaks of {_base(name)}, but it acts on {other}."
    return _up_to(run, at - 1, _unanswered(msgspec.structs.replace(step, action=action)), at, reason)


# A step that uses what nobody has shown


def dropped_observation(run: Trajectory) -> Iterator[Callable[[], Fault | None]]:
    """A step taken out whose result the next step uses: an id or a long number that stands nowhere before."""
    for at in range(2, len(run.steps)):
        step, following = run.steps[at - 1], run.steps[at]
        used = set(_TOKEN.findall(f"{following.thought}\n{following.action}"))
        told = sorted(used & set(_TOKEN.findall(step.observation)))
        told = [token for token in told if _is_distinctive(token) and token not in f"{step.thought}\n{step.action}"]
        for token in told:
            yield lambda at=at, token=token: _without(run, at, token)  # type: ignore[misc]


def _is_distinctive(token: str) -> bool:
    """Whether nobody would guess it."""
    digits = sum(letter.isdigit() for letter in token)
    return digits >= 2 and _DISTINCTIVE.fullmatch(token) is not None and not _COMMON.search(token)


def _without(run: Trajectory, at: int, token: str) -> Fault | None:
    before = run.steps[: at - 1]
    if any(token.casefold() in text.casefold() for text in (run.task.text, *map(_text, before))):
        return None
    reason = f"It uses {token}, which nothing before it shows."
    return Fault((*before, run.steps[at]), (*range(1, at), at + 1), reason)


# A claim that an earlier observation contradicts


class _Value(NamedTuple):
    text: str
    about: str
    """The nearest word before it, in lower case."""


def contradicted_claim(run: Trajectory) -> Iterator[Callable[[], Fault | None]]:
    """A thought that cites a number of an earlier observation, with another number of the run in its place."""
    shown: dict[_Value, int] = {}
    for at, step in enumerate(run.steps, 1):
        for sentence in _sentences(step.thought):
            if _NOT_SAID.search(sentence):
                continue
            for value in _values(sentence):
                source = shown.get(value)
                if source is not None and len(value.text) > 1 and step.thought.count(value.text) == 1:
                    others = sorted({other.text for other in shown if _alike(other, value, shown)})
                    for other in others:
                        yield lambda at=at, value=value, other=other, source=source: _claiming(  # type: ignore[misc]
                            run, at, value, other, source
                        )
        for value in _values(step.observation):
            shown.setdefault(value, at)


def _values(text: str) -> Iterator[_Value]:
    for match in _NUMBER.finditer(text):
        before = text[max(0, match.start() - NEAR_CHARACTERS) : match.start()]
        words = _WORD.findall(before)
        # Of a day of a month the word before says nothing.
        if words and not (_MONTH.search(before) and len(match.group(0)) < 3):
            yield _Value(match.group(0), words[-1].casefold())


def _alike(other: _Value, value: _Value, shown: Mapping[_Value, int]) -> bool:
    """Whether the other number has the shape of this one, and was never shown of the same thing."""
    return (
        re.sub(r"\d", "0", other.text) == re.sub(r"\d", "0", value.text)
        and other.text != value.text
        and _Value(other.text, value.about) not in shown
    )


def _claiming(run: Trajectory, at: int, value: _Value, other: str, source: int) -> Fault | None:
    step = run.steps[at - 1]
    if re.search(rf"\b{re.escape(value.about)}\b[^\n]{{0,{NEAR_CHARACTERS}}}{re.escape(other)}", run.task.text, re.I):
        return None
    thought = step.thought.replace(value.text, other)
    reason = f"It says {value.about} {other}, but step {source} shows {value.about} {value.text}."
    return _up_to(run, at - 1, msgspec.structs.replace(step, thought=thought), at, reason)


FINDERS: Mapping[str, Finder] = {
    "wrong_file": wrong_file,
    "dropped_observation": dropped_observation,
    "contradicted_claim": contradicted_claim,
    "repeated_command": repeated_command,
    "fake_success": fake_success,
}
"""Kind of fault -> where it can be put. A new kind is one function and one entry."""


def places(run: Trajectory, kinds: Sequence[str]) -> dict[str, list[Callable[[], Fault | None]]]:
    """The places of each kind that has one in this run."""
    found = {kind: list(FINDERS[kind](run)) for kind in kinds}
    return {kind: there for kind, there in found.items() if there}
