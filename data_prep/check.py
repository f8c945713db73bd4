"""Checks an analysis against what its reader could see, without asking the one who wrote it.

Every visit that a paragraph cites has to stand in the observation of that step, in the same words and numbers; what it
calls left has to be the running intersection of the cited visits; what it says the step says has to stand in the
step; what it concludes has to follow; and it must not speak of labels it was given. Text that it cannot check is a
problem too. Written apart from the writer: it reads the paragraphs as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from scout.trajectory import Step, Trajectory
from scout.worlds.effects import EFFECTS, NAMES, change

CITED = re.compile(
    r"([A-E]) (\d) (even|odd) (\d) (even|odd) (even|odd), slope ([+-]\d), score ([+-]\d+)(?: energy ([+-]\d+))? "
    r"fits ([a-z ]+), left ([a-z ]+)\.",
    flags=re.ASCII,
)
SAID = re.compile(
    r"([A-E]) left ([a-z ]+), (?:says|claims|holds) ([a-z ]+), left ([a-z ]+): (same|agrees|differs|conflicts)\."
)
MARKED = re.compile(r"([a-z]+) (in|no)")
"""An effect of one list and whether the other one has it."""
TESTED = re.compile(r"test ([A-E]) left ([a-z ]+): (tells|tells nothing)\.")
MISSED = re.compile(r"test ([A-E]) on ([A-EX]): tells nothing\.")
REFUSED = re.compile(r"refused\.")
FORMS = (CITED, SAID, TESTED, MISSED, REFUSED)
"""Every sentence that an analysis may hold."""
FAULT = re.compile(r": (?:differs|conflicts|tells nothing)\.|\brefused\.")
"""What a paragraph says of an incorrect step only."""
SEEN = re.compile(
    r"\((\d),(\d),([A-E])\) score ([+-]\d+) energy (\d+)(?: ([+-]\d+))? step (\d+) visit (\d+)", flags=re.ASCII
)
TELLTALE = re.compile(r"\b(gold|label(?:s|led)?|annotat\w+|ground truth|as given|was told|answer key)\b", re.IGNORECASE)
NUMBER = {names[0]: number for number, names in NAMES.items()}

Left = dict[str, frozenset[int]]
"""Letter -> effects that the visits cited so far leave."""


def leaks(paragraphs: Mapping[int, str]) -> list[str]:
    """Problems of an analysis that mentions what it cannot know: labels it was given."""
    return [f"step {i}: speaks of {m.group(0)!r}" for i, text in paragraphs.items() if (m := TELLTALE.search(text))]


def contradictions(paragraphs: Mapping[int, str], labels: Mapping[int, str]) -> list[str]:
    """Labelled steps whose paragraph finds a fault where the label has none, or none where it has one."""
    return [
        f"step {index}: the analysis finds {'a' if FAULT.search(text) else 'no'} fault, the label is {labels[index]}"
        for index, text in paragraphs.items()
        if labels.get(index, "unlabelled") != "unlabelled" and bool(FAULT.search(text)) != (labels[index] != "correct")
    ]


def problems(run: Trajectory, paragraphs: Mapping[int, str]) -> list[str]:
    """What is wrong with the facts of an analysis; empty when everything cited was visible at its step."""
    found = leaks(paragraphs)
    left: Left = {}
    for step in run.steps:
        if step.index in paragraphs:
            found.extend(f"step {step.index}: {problem}" for problem in _step(step, paragraphs[step.index], left))
    return found


def _step(step: Step, text: str, left: Left) -> list[str]:
    found = [*_claims(step, text, left), *_tests(step, text, left)]
    if bool(REFUSED.search(text)) != step.observation.startswith("refused"):
        found.append("is wrong about whether the call was refused")
    seen, cited = SEEN.search(step.observation), CITED.findall(text)
    if bool(seen) != bool(cited) or len(cited) > 1:
        found.append("cites another number of visits than the observation holds")
    elif seen:
        found.extend(_visit(seen, cited[0], left))
    for form in FORMS:
        text = form.sub("", text)
    if text.strip():
        found.append(f"says {text.strip()!r}, which cannot be checked")
    return found


def _claims(step: Step, text: str, left: Left) -> Iterator[str]:
    for letter, stated, marked, again, verdict in SAID.findall(text):
        said = " or ".join(name for name, _ in _marks(marked))
        if [name for name, _ in _marks(again)] != stated.split(" or "):
            yield f"{letter} left {stated!r} and then {again!r}"
        for name, mark in (*_marks(marked), *_marks(again)):
            if (name in said.split(" or ") and name in stated.split(" or ")) != (mark == "in"):
                yield f"{name!r} is not {mark!r}"
        if _effects(stated) != left.get(letter, frozenset(EFFECTS)):
            yield f"{letter} left {stated!r} does not follow from the visits cited so far"
        if not _says(f"{step.thought} {step.action}", letter, said):
            yield f"the step does not say {said!r} of {letter}"
        if (stated == said) != (verdict in ("same", "agrees")):
            yield f"{said!r} against {stated!r} is not what {verdict!r} means"


def _marks(listed: str) -> list[tuple[str, str]]:
    """(effect, mark) of a marked list; ("", "") for an entry that has no mark."""
    found = (MARKED.fullmatch(entry) for entry in listed.split(" or "))
    return [(m[1], m[2]) if m else ("", "") for m in found]


def _tests(step: Step, text: str, left: Left) -> Iterator[str]:
    seen = SEEN.search(step.observation)
    landed = seen[3] if seen else "X"
    for letter, where in MISSED.findall(text):
        if where != landed or letter == landed or not _names(step.thought, letter):
            yield f"the step does not test {letter} on {where}"
    for letter, stated, verdict in TESTED.findall(text):
        before = left.get(letter, frozenset(EFFECTS))
        if _effects(stated) != before:
            yield f"{letter} left {stated!r} does not follow from the visits cited so far"
        if seen is None or letter != landed or not _names(step.thought, letter):
            yield f"the step does not test {letter}"
        elif (len({_outcome(effect, seen) for effect in before}) > 1) != (verdict == "tells"):
            yield f"the test of {letter} is not one that {verdict}"


def _visit(seen: re.Match[str], cited: tuple[str, ...], left: Left) -> Iterator[str]:
    x, y, letter, score, _, extra, _, _ = seen.groups()
    parities = ("odd" if number % 2 else "even" for number in (int(x), int(y), int(x) + int(y)))
    shown = (letter, x, next(parities), y, *parities, f"{int(x) - int(y):+d}", score, extra or "")
    if cited[:9] != shown:
        yield f"cites {cited[:9]}, the observation has {shown}"
    fits = {effect for effect in EFFECTS if _outcome(effect, seen) == (int(score), int(extra or 0))}
    if _effects(cited[9]) != fits:
        yield f"says that {cited[9]!r} fit the visit"
    left[letter] = left.get(letter, frozenset(EFFECTS)) & fits
    if _effects(cited[10]) != left[letter]:
        yield f"says that {cited[10]!r} is left for {letter}"


def _outcome(effect: int, seen: re.Match[str]) -> tuple[int, int]:
    """(score change, energy change) of the visit if its letter had the effect."""
    x, y, _, _, energy, _, step, visit = seen.groups()
    return change(effect, int(x), int(y), int(energy), int(step), int(visit))


def _effects(text: str) -> frozenset[int]:
    if text == "open":
        return frozenset(EFFECTS)
    return frozenset(NUMBER.get(name, 0) for name in text.split(" or ")) if text != "none" else frozenset()


def _names(text: str, letter: str) -> bool:
    return re.search(rf"\b{letter}\b", text) is not None


def _says(visible: str, letter: str, said: str) -> bool:
    """Whether one clause names the letter and exactly these effects, not a longer or shorter list."""
    if said == "open":
        pattern = r"(?i)\b(?:open|nothing|anything)\b"
    else:
        names = (NAMES[NUMBER[name]] if name in NUMBER else (name,) for name in said.split(" or "))
        listed = " or ".join(f"(?:{'|'.join(map(re.escape, each))})" for each in names)
        pattern = rf"(?<! or )\b{listed}\b(?! or )"
    return any(_names(clause, letter) and re.search(pattern, clause) for clause in re.split("[.;,]", visible))
