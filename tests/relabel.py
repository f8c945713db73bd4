"""Labels of Mystery Grid runs worked out from the text of their steps, apart from the code that made them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from scout.trajectory import Step, Trajectory
from scout.worlds.effects import change

WORDS = {
    "plus": 1, "gift": 2, "parity": 3, "minus": 4, "reserve": 5, "thirds": 6, "border": 7, "boundary": 7, "visits": 8,
    "refill": 9, "slope": 10,
}  # fmt: skip
ALL = frozenset(range(1, 11))
CLAIM = re.compile(
    r"(?:^|(?<=[.:,] ))(?:"
    r"(?P<a>[A-E]) (?:is|must be|comes down to) (?P<ea>[a-z ]+)"
    r"|Only (?P<eb>[a-z ]+) fits (?P<b>[A-E])"
    r"|For (?P<c>[A-E]) that leaves (?P<ec>[a-z ]+)"
    r"|So (?P<d>[A-E]) does (?P<ed>[a-z ]+)"
    r"|Nothing known of (?P<e>[A-E])"
    r"|(?P<f>[A-E]) could be anything"
    r")\."
)
TEST = re.compile(r"(?:Test|Now try|A visit to) ([A-E])\b")
VISIT = re.compile(r"\((\d),(\d),([A-E])\) score (\S+) energy (\d+)(?: ([+-]\d+))? step (\d+) visit (\d+)")


def _effects(text: str | None) -> frozenset[int]:
    return ALL if text in (None, "open") else frozenset(WORDS[word] for word in str(text).split(" or "))


def said_in(step: Step) -> list[tuple[str, frozenset[int]]]:
    """What the step says is left for which letters: in its thought, in a note, in a commit."""
    claims = []
    for found in CLAIM.finditer(step.thought):
        letter = next(found[name] for name in "abcdef" if found[name])
        claims.append((letter, _effects(next((found[name] for name in ("ea", "eb", "ec", "ed") if found[name]), None))))
    tool, arguments = step.action.split(" ", 1)
    if tool == "note_tool":
        entries = (entry.split(" ", 1) for entry in json.loads(arguments)["note"].split("; "))
        claims += [(letter, _effects(words)) for letter, words in entries]
    if tool == "commit_final_result":
        answer = json.loads(json.loads(arguments)["content"])
        claims += [(letter, frozenset({WORDS[word]})) for letter, word in answer.items() if word is not None]
    return claims


def relabelled(run: Trajectory) -> Iterator[str]:
    """The label of each step, in order."""
    left = dict.fromkeys("ABCDE", ALL)
    for step in run.steps:
        sound = not step.observation.startswith("refused")
        sound = sound and all(effects == left[letter] for letter, effects in said_in(step))
        found = VISIT.match(step.observation)
        tested = TEST.search(step.thought)
        outcomes: dict[int, tuple[int, int]] = {}
        if found:
            x, y, _, _, energy, _, round_step, visit = found.groups()
            place = (int(x), int(y), int(energy), int(round_step), int(visit))
            outcomes = {effect: change(effect, *place) for effect in ALL}
        if tested and sound:
            landed = found[3] if found else "X"
            sound = landed == tested[1] and len({outcomes[effect] for effect in left[landed]}) > 1
        if found:
            seen = (int(found[4]), int(found[6] or 0))
            left[found[3]] &= {effect for effect, outcome in outcomes.items() if outcome == seen}
        yield "correct" if sound else "incorrect"
