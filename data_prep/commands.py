"""What a recorded action does, as far as its words tell for certain: only read, change something, test."""

from __future__ import annotations

import re

_SHELL = re.compile(r"\s*\w*(?:bash|shell|terminal|exec)\w*\s+(?=\S)", re.IGNORECASE)
_ARGUMENTS = re.compile(r'\{"(?:command|cmd|keystrokes)":\s*"(.*?)"(?:,"\w+":.*)?\}', re.DOTALL)
_PARTS = re.compile(r"&&|\|\|?|;|\\n|\n")
_READING_TOOL = re.compile(
    r"(?:get|list|find|search|read|view|open|glob|grep|lookup|query|ls|goto|calculate)(?:_\w+)?", re.IGNORECASE
)
_READING_PROGRAM = re.compile(
    r"cat|ls|head|wc|file|which|nl|readelf|stat|od|xxd|[ef]?grep|rg|sha256sum|md5sum|strings|ldd|du|tree|pwd|cut|sort|"
    r"uniq|echo|printf|cd|objdump|hexdump|nm|cmp|diff"
)
_AGAIN = re.compile(r"\bmore\b|scroll|next|page|status|background|output|watch|log\b|\.log|\bps\b|/proc", re.IGNORECASE)
"""What may show something new when it is read again."""
_WRITES = re.compile(
    r"(?<!\d)>(?!&)|write|creat|edit|insert|replac|patch|\btee\b|sed -i|mkdir|\bgit\b|install|\bcp\b|\bmv\b|save|put",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"(?:book|cancel|update|modify|return|exchange|create|delete|send|submit|transfer)(?=_)", re.IGNORECASE
)
_TEST = re.compile(r"\b(?:py)?tests?\b|\btest_|_test\b|unittest|\bverif|\bcheck", re.IGNORECASE)
_VIEWS = re.compile(r"\b(?:cat (?![>-]|<<)|head|less|grep|sed -n|view|open|read)\b", re.IGNORECASE)
"""What such a command shows may be the text of a test rather than its result."""


def reads_only(action: str) -> bool:
    """Whether the action does nothing but read what stays as it is, so that doing it again shows the same."""
    if _AGAIN.search(action) or ">" in action:
        return False
    shell = _SHELL.match(action)
    if shell is None:
        words = action.split(None, 1)
        named = bool(words) and _READING_TOOL.fullmatch(words[0]) is not None
        return named and "\n" not in action.strip()
    text = action[shell.end() :]
    arguments = _ARGUMENTS.fullmatch(text.strip())
    programs = [part.split() for part in _PARTS.split(arguments.group(1) if arguments else text)]
    return all(_READING_PROGRAM.fullmatch(words[0]) for words in programs if words)


def works(action: str) -> bool:
    """Whether the action may write or test something."""
    return _WRITES.search(action) is not None or _TEST.search(action) is not None


def tests(action: str) -> bool:
    """Whether what comes back is the result of a test, not the text of one."""
    return _TEST.search(action) is not None and _VIEWS.search(action) is None


def changes(action: str) -> tuple[str, str] | None:
    """Name and verb of a call that changes a record (`cancel_order`, `cancel`), or None."""
    name = action.split(None, 1)[0] if action.strip() else ""
    verb = _CHANGES.match(name)
    return (name, verb.group(0)) if verb is not None else None
