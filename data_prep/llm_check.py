"""Whether a large model's analysis may be used: its verdicts equal the labels, and its reasons could be given blind.

A reason may not speak of labels that the writer was shown, and one that leans on later steps must lean on earlier
evidence too (a step is judged by what was known at the time).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from data_prep.check import TELLTALE
from scout import prompt
from scout.budget import Window
from scout.errors import printable
from scout.neutral import neutralise
from scout.verdict import parse_reply

REASON_WORDS = 4
"""A paragraph with fewer words gives no reason."""
REPLY_MARGIN = 16
"""Tokens of a reply that the analysis does not fill: think tags and the end token."""
SHOWN_CHARACTERS = 200

TOLD = re.compile(
    r"\b(?:settled (?:as|verdicts?)|pre-?determined|(?:given|provided|supplied|stated|official|known|"
    r"reference|expected|assigned|established) (?:verdict|judge?ment|assessment)s?|"
    r"(?:marked|flagged|tagged|rated|deemed) (?:as )?(?:in)?correct|(?:my|your|these) instructions?|"
    r"(?:per|according to) the (?:verdict|marking|assessment)s?)\b",
    re.IGNORECASE,
)
"""Further ways to speak of verdicts that were given, beside `check.TELLTALE`."""
HINDSIGHT = re.compile(
    r"\b(?:in hindsight|in retrospect|with hindsight|turn(?:s|ed) out|(?:as )?later (?:steps?|observations?|outputs?|"
    r"results?|events|on)\b|subsequent(?:ly)?|eventually|ultimately|in the end|(?:next|following) steps?|"
    r"(?:run|task) (?:then )?(?:fails|failed|succeeds|succeeded))\b",
    re.IGNORECASE,
)
BEFORE = re.compile(
    r"\b(?:earlier|previous(?:ly)?|prior|already|so far|before (?:this|that|it)|"
    r"(?:task|user|question|instructions?|requirements?) (?:asks?|says?|wants?|requires?|demands?|states?|names?))\b",
    re.IGNORECASE,
)
REFERENCE = re.compile(r"\bsteps?\s+(\d+(?:\s*(?:,|and|to|or|-|–|through)\s*\d+)*)|\[(\d+)\]", re.IGNORECASE)
FACT = re.compile(
    r"\"([^\"\n]{3,80})\"|`([^`\n]{2,80})`|“([^”\n]{3,80})”|"
    r"([A-Za-z0-9_]+(?:[./:_]+[A-Za-z0-9_]+)+|[A-Za-z_]+\d[A-Za-z0-9_]*|\d{2,}|[A-Z][a-z]+[A-Z]\w+)"
)
"""What can be looked up in the text of a run: quotations, numbers, paths, identifiers."""
EXCUSE = re.compile(
    r"\b(?:I(?:'|’)?m sorry|I (?:can(?:no|')?t|cannot|won't|am unable|must decline)|unable to (?:help|assist))", re.I
)


class Unusable(Exception):
    """An analysis that is not used. kind: one of a few words, for counting; the text says what is wrong."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(printable(text, SHOWN_CHARACTERS))
        self.kind = kind


class Reply(NamedTuple):
    """What a model answered."""

    text: str
    finish: str | None
    refusal: str | None


class Written(NamedTuple):
    """An analysis that may be used."""

    paragraphs: dict[int, str]
    """Step index -> reason on one line, without its closing sentence; empty for a step without a label."""
    state: str | None


def accept(
    reply: Reply,
    window: Window,
    labels: Mapping[int, prompt.Label],
    state: str | None,
    *,
    last: bool,
    limit_tokens: int,
    count: Callable[[str], int],
) -> Written:
    """The analysis in a reply to `llm_prompt.messages` with the same arguments. Raises Unusable with the reason.

    limit_tokens: what the reply may be long for the verifier that is to learn it, counted by `count`.
    """
    indices = [step.index for step in window.steps]
    gold: dict[int, prompt.Label] = {index: labels[index] for index in indices if labels[index] != "unlabelled"}
    written = _parsed(reply, indices, gold, wants_state=not last)
    _blind(written, window, state)
    paragraphs = {index: written.paragraphs[index] for index in gold}
    text = prompt.reply_text(paragraphs, gold, state=written.state)
    again = parse_reply(text, indices, True)
    if not again.readable or again.contradictions or again.block != gold or again.paragraph_labels != gold:
        raise Unusable("unreadable", f"as a reply it reads differently: {again.problem or again.contradictions}")
    length = count(text)
    if length + REPLY_MARGIN > limit_tokens:
        raise Unusable("too long", f"{length} tokens; the verifier's reply may have {limit_tokens - REPLY_MARGIN} here")
    return written


def _parsed(reply: Reply, indices: list[int], gold: Mapping[int, str], *, wants_state: bool) -> Written:
    # A model that thinks aloud does so before the tag; its thoughts are not the analysis.
    text = reply.text.rpartition("</think>")[2].strip()
    text = "\n".join(line.strip() for line in text.split("\n") if not line.startswith("```"))
    if reply.refusal or reply.finish == "content_filter":
        raise Unusable("refused", f"the model refused: {reply.refusal or 'content filter'}")
    if reply.finish != "stop":
        raise Unusable("cut off", f"the reply ended by {reply.finish!r}, not by itself")
    found = parse_reply(text, indices, True)
    if not found.readable:
        refused = not found.block and not found.paragraphs and EXCUSE.search(text[:400])
        raise Unusable("refused" if refused else "unreadable", f"{text[:120]!r}" if refused else f"{found.problem}")
    for place, verdicts in (("closing sentences", found.paragraph_labels), ("block", found.block)):
        if verdicts != gold:
            wrong = [f"step {i}: {verdicts.get(i, 'none')}" for i in indices if verdicts.get(i) != gold.get(i)]
            raise Unusable("verdicts differ", f"{place}: {', '.join(wrong)}")
    if found.contradictions:
        raise Unusable("contradicts itself", found.contradictions[0])
    # A state that nobody asked for is left out.
    state = " ".join(neutralise(found.state or "").split()) if wants_state else None
    if state == "":
        raise Unusable("no state", "there is no line 'State:' with something in it")
    paragraphs = dict.fromkeys(indices, "")
    for index in gold:
        paragraphs[index] = _sentence(found.paragraphs[index])
        if len(paragraphs[index].split()) < REASON_WORDS:
            raise Unusable("no reason", f"step {index}: {paragraphs[index]!r}")
    return Written(paragraphs, state)


def _sentence(text: str) -> str:
    line = " ".join(neutralise(text).split())
    return line if not line or line.endswith((".", "!", "?")) else f"{line}."


def _blind(written: Written, window: Window, state: str | None) -> None:
    """Raises Unusable for a reason that could not be given without the labels, or only in hindsight."""
    texts = {s.index: f"{s.thought}\n{s.action}\n{s.observation}".casefold() for s in window.steps}
    everything = f"{window.task}\n{state or ''}".casefold()
    for index, own in texts.items():
        before, everything = everything, f"{everything}\n{own}"
        later = "\n".join(text for other, text in texts.items() if other > index)
        if told := _told(written.paragraphs[index], everything):
            raise Unusable("speaks of labels", f"step {index}: {told!r}")
        if found := hindsight(written.paragraphs[index], index, before, own, later):
            raise Unusable("hindsight", f"step {index}: leans on {found!r} and on nothing before it")
    if written.state and (told := _told(written.state, everything)):
        raise Unusable("speaks of labels", f"state: {told!r}")


def _told(text: str, seen: str) -> str | None:
    """Words that speak of labels, unless the run itself has used them."""
    words = (match.group(0) for pattern in (TELLTALE, TOLD) for match in pattern.finditer(text))
    return next((word for word in words if word.casefold() not in seen), None)


def hindsight(reason: str, index: int, before: str, own: str, later: str) -> str | None:
    """What a reason takes from after the step, when it takes nothing from before it; None when the reason is sound.

    before, own, later: casefolded text of the task, the state and the earlier steps; of the step; of later steps.
    """
    reason = REFERENCE.sub(
        lambda match: match.group(0) if match.group(0).casefold() not in before + own else "", reason
    )
    references = [int(n) for match in REFERENCE.finditer(reason) for n in re.findall(r"\d+", match.group(0))]
    facts = [next(filter(None, match)).casefold() for match in FACT.findall(REFERENCE.sub("", reason))]
    ahead = [f"step {number}" for number in references if number > index]
    ahead += [fact for fact in facts if fact in later and fact not in before and fact not in own]
    ahead += [match.group(0) for match in HINDSIGHT.finditer(reason)]
    if not ahead:
        return None
    behind = any(number < index for number in references) or any(fact in before for fact in facts)
    return None if behind or BEFORE.search(reason) else ahead[0]
