"""Trajectory text is hostile data: make it plain, visible text that can neither steer a template nor fake a verdict.

What changes, and into what, so that a reader still sees what was there:
- control tokens of any chat template lose their first character to a look-alike that no tokenizer reserves:
  `<|im_start|>` becomes `‹|im_start|>`, `</think>` becomes `‹/think>`, `[INST]` becomes `⁅INST]`. Any short
  `<word>` counts as one, HTML tags included, because which words are reserved depends on the tokenizer;
- a line that looks like part of a verdict (`Verdicts:`, `Step 3: correct`, `Verdict: Yes`, `State:`) or like the
  header of a step (`[7] `) gets a `›` in front;
- colours and other terminal sequences, zero-width characters, bidi overrides and Unicode tags are removed; other
  control characters become their pictures (NUL is `␀`), lone surrogates and the unassigned planes
  become `�`; every line break becomes `\\n`.
All other text is unchanged.
"""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Default-ignorable characters of Unicode (DerivedCoreProperties, 16.0) and the bidi controls: none has a glyph."""

_TERMINAL = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")
"""A control sequence (ECMA-48): parameters, intermediates, final byte. It holds no text, so nothing is lost with it."""

_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""Everything that `str.splitlines` takes for a line break, `\\n` apart."""

_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\U00040000-\U000dffff]")
"""Control characters, surrogates, and the ten planes of Unicode that hold no character: SmolLM2 has no token for their
bytes, nor for some control characters, and reads them as `<|endoftext|>`."""

_BRACKET_WORDS = (
    "INST|SYS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|MODEL_SETTINGS|ARGS|CALL_ID|THINK|IMG|"
    "IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO|TRANSCRIBE|PREFIX|MIDDLE|SUFFIX|REF|CONTROL_[0-9]+|UNUSED_TOKEN_[0-9]+|PAD|CLS|"
    "SEP|UNK|MASK|[A-Za-z]MASK|BOS|EOS|EOT|EOD|EOP|start_header_id|end_header_id|unused[0-9]+|extra_id_[0-9]+"
)
"""Reserved words in square brackets (Mistral, BERT, GLM, InternLM, Kimi); a list, as `[INFO]` must stay as it is."""

_TOKENS = (
    (re.compile("[<\uff1c\ufe64](?=[|\uff5c])"), "‹"),
    (re.compile(r"[<\uff1c\ufe64](?=[^\s<>‹\uff1c\uff1e\ufe64\ufe65.,;(){}\"'`]{1,64}[>\uff1e\ufe65])"), "‹"),
    (re.compile(rf"\[(?=\||/?(?:{_BRACKET_WORDS})\])"), "⁅"),
    # ">>TITLE<<" (Falcon), "◁think▷" (Kimi-VL), "]~b]" and "[e~[" (MiniMax), "/nothink" (GLM; soft switch of Qwen3).
    (re.compile(r">(?=>[A-Z_]{1,32}<<)"), "›"),
    (re.compile(r"◁(?=/?\w{1,32}▷)"), "‹"),
    (re.compile(r"[\[\]](?=[!a-z~]{0,2}~[!a-z~]{0,2}[\[\]])"), "⁅"),
    (re.compile(r"/(?=no_?think|think(?![\w/.-]))"), "∕"),
)
"""First characters of control tokens, and what stands for them. No replacement can be normalised back (NFKC)."""

_DECORATION = r"[ \t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000>*#_`~\"'-]*"
_FAKE_LINE = re.compile(
    rf"^(?={_DECORATION}(?:verdicts?{_DECORATION}[:\uff1a]|state{_DECORATION}[:\uff1a]"
    rf"|step[ \t]*\d+{_DECORATION}[:\uff1a]{_DECORATION}(?:in)?correct|\[\d+\]))",
    re.IGNORECASE | re.MULTILINE,
)


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\ufffd"


def neutralise(text: str) -> str:
    """`text` with everything that could pass for a control token or a verdict defused, as the module says.

    Total (any string, lone surrogates too), idempotent, linear in the length of `text`.
    """
    text = _INVISIBLE.sub("", text)
    text = _TERMINAL.sub("", text)
    text = _LINE_BREAK.sub("\n", text)
    text = _CONTROL.sub(_picture, text)
    for pattern, stand_in in _TOKENS:
        text = pattern.sub(stand_in, text)
    return _FAKE_LINE.sub("›", text)
