"""Checks an analysis against what its reader could see, without asking the one who wrote it.

Every visit that a paragraph cites has to stand in the observation of that step, in the same words and numbers; what it
calls left has to be the running intersection of the cited visits; what it says the step says has to stand in the
step; and it must not speak of labels it was given. Written apart from the writer: it reads the paragraphs as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from scout.trajectory import Step, Trajectory
from scout.worlds.effects import EFFECTS, NAMES, change

CITED = re.compile(
    r"([A-E]) \((\d),(\d)\) (even|odd) ([+-]\d+)(?: energy ([+-]\d+))? fits ([a-z ]+), left ([a-z ]+)\.", flags=re.ASCII
)
SAID = re.compile(r"([A-E]) left ([a-z ]+), (?:says|claims|holds) ([a-z ]+): (\w+)\.", flags=re.ASCII)
SEEN = re.compile(r"\((\d),(\d),([A-E])\) score ([+-]\d+) energy (\d+)(?: ([+-]\d+))? step (\d+) visit (\d+)")
TELLTALE = re.compile(r"\b(gold|label(?:s|led)?|annotat\w+|ground truth|as given|was told|answer key)\b", re.IGNORECASE)
NUMBER = {names[0]: number for number, names in NAMES.items()}


def leaks(paragraphs: Mapping[int, str]) -> list[str]:
    """Problems of an analysis that mentions what it cannot know: labels it was given."""
    return [f"step {i}: speaks of {m.group(0)!r}" for i, text in paragraphs.items() if (m := TELLTALE.search(text))]


def problems(run: Trajectory, paragraphs: Mapping[int, str]) -> list[str]:
    """What is wrong with the facts of an analysis; empty when everything cited was visible at its step."""
    found = leaks(paragraphs)
    left: dict[str, frozenset[int]] = {}
    for step in run.steps:
        if step.index in paragraphs:
            found.extend(f"step {step.index}: {problem}" for problem in _step(step, paragraphs[step.index], left))
    return found


def _step(step: Step, text: str, left: dict[str, frozenset[int]]) -> list[str]:
    found = []
    seen = SEEN.search(step.observation)
    cited = CITED.findall(text)
    for letter, stated, said, _ in SAID.findall(text):
        if _effects(stated) != left.get(letter, frozenset(EFFECTS)):
            found.append(f"{letter} left {stated!r} does not follow from the visits cited so far")
        visible = f"{step.thought} {step.action}"
        missing = [name for name in said.split(" or ") if name not in ("open", "none") and not _mentions(visible, name)]
        if missing:
            found.append(f"the step does not say {' or '.join(missing)} of {letter}")
    if bool(seen) != bool(cited) or len(cited) > 1:
        found.append("cites another number of visits than the observation holds")
    elif seen:
        found.extend(_visit(seen, cited[0], left))
    return found


def _visit(seen: re.Match[str], cited: tuple[str, ...], left: dict[str, frozenset[int]]) -> list[str]:
    x, y, letter, score, energy, extra, step, visit = seen.groups()
    parity = "odd" if (int(x) + int(y)) % 2 else "even"
    found = []
    if cited[:6] != (letter, x, y, parity, score, extra or ""):
        found.append(f"cites {cited[:6]}, the observation has {(letter, x, y, parity, score, extra or '')}")
    outcome = (int(score), int(extra or 0))
    fits = {e for e in EFFECTS if change(e, int(x), int(y), int(energy), int(step), int(visit)) == outcome}
    if _effects(cited[6]) != fits:
        found.append(f"says that {cited[6]!r} fit the visit")
    left[letter] = left.get(letter, frozenset(EFFECTS)) & fits
    if _effects(cited[7]) != left[letter]:
        found.append(f"says that {cited[7]!r} is left for {letter}")
    return found


def _effects(text: str) -> frozenset[int]:
    if text == "open":
        return frozenset(EFFECTS)
    return frozenset(NUMBER.get(name, 0) for name in text.split(" or ")) if text != "none" else frozenset()


def _mentions(visible: str, name: str) -> bool:
    return any(re.search(rf"\b{word}\b", visible) for word in NAMES[NUMBER[name]]) if name in NUMBER else False
