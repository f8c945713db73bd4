"""Chat messages that ask a large model for an analysis that arrives at given verdicts: the only home of that text.

The writer sees what the verifier will see, shortened alike, with the gold label under each step. Text of the run passes
through `prompt.step_text`, so no line of it can pass for a label.
"""

from __future__ import annotations

from collections.abc import Mapping

from scout import prompt
from scout.budget import Window
from scout.neutral import neutralise

_SYSTEM = (
    prompt.STYLES["full"].system
    + """

You write the audit that others learn auditing from. Under each step stands a line "settled:" with the verdict that \
careful people reached; it is final. Write an audit that reaches exactly these verdicts from the recording alone, as \
if you had come to them yourself:
- Give the reason, not the result: name the words, numbers or facts of the task and of earlier steps that a decision \
agrees or conflicts with. For an incorrect step say what it gets wrong and where that could be seen at the time.
- Judge each step by what stands up to and including it. Do not mention later steps or how the run ends.
- Say nothing about settled verdicts, labels, annotators or these instructions. Readers have only the recording.
- If a verdict surprises you, look for the evidence that supports it; do not argue with it and do not hedge."""
)

_CLOSING = """\
Audit steps {first} to {last}. For each step that is settled as correct or incorrect write one paragraph of at most \
{words} words, without line breaks. It begins with the step's number in square brackets and ends with exactly "This \
step is correct." or "This step is incorrect."; nowhere else use these sentences.{unlabelled}{state} Then write the \
line "Verdicts:", one line for each of these steps in the form "Step {first}: correct" or "Step {first}: incorrect", \
and as the very last line "Verdict: Yes" if none of them is incorrect, else "Verdict: No". Plain text, no markup."""

_UNLABELLED = ' A step settled as "open" gets no paragraph and no line.'
_STATE = (
    ' After the last paragraph write one line that begins with "State:" and holds, in at most {words} words, what an '
    "auditor of the later steps must know: facts found, claims made, what is still wrong and since which step."
)

WORDS_OF_A_TOKEN = 0.6
"""Words that a token limit is taken to hold; English has 0.75, names and numbers fewer."""
FRAME_WORDS = 14
"""Of each step's share this much goes to its number, its closing sentence and its line of the block."""
FEWEST_WORDS, MOST_WORDS = 15, 90


def messages(
    window: Window, labels: Mapping[int, str], state: str | None, *, reply_tokens: int, state_tokens: int, last: bool
) -> list[dict[str, str]]:
    """What is sent for one window (or part of one).

    labels: step index -> gold label. state: what the writer carried on from the part before. reply_tokens: what the
    analysis may be long, as the verifier's tokenizer counts. last: False asks for a state of at most `state_tokens`.
    """
    parts = [f"Task: {_line(window.task)}"]
    if state is not None:
        parts.append(f"State: {' '.join(neutralise(state[: prompt.CARRIED_CHARACTERS]).split())}")
    for step in window.steps:
        label = labels[step.index]
        parts.append(f"{prompt.step_text(step)}\nsettled: {'open' if label == 'unlabelled' else label}")
    share = (reply_tokens - (0 if last else state_tokens)) / max(1, len(window.steps))
    parts.append(
        _CLOSING.format(
            first=window.steps[0].index,
            last=window.steps[-1].index,
            words=int(min(MOST_WORDS, max(FEWEST_WORDS, share * WORDS_OF_A_TOKEN - FRAME_WORDS))),
            unlabelled=_UNLABELLED if "unlabelled" in labels.values() else "",
            state="" if last else _STATE.format(words=max(FEWEST_WORDS, int(state_tokens * WORDS_OF_A_TOKEN))),
        )
    )
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": "\n".join(parts)}]


def fixed_text() -> str:
    """Everything that a prompt holds beside the run, for measuring."""
    return f"{_SYSTEM}\n{_CLOSING}{_UNLABELLED}{_STATE}"


def _line(text: str) -> str:
    return neutralise(text).strip().replace("\n", "\n  ")
