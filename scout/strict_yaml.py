"""YAML as people mean it: repeated keys are refused, every key knows its line, `1e-4` is a number and `no` a text."""

from __future__ import annotations

import re
from typing import Any

import yaml

from scout.records import Finding


class _Loader(yaml.SafeLoader):
    """SafeLoader with the plain values of YAML 1.2: true and false only, and numbers such as 1e-4."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes what _Loader would not read as a text."""


_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.inf|\.nan"
_PLAIN_VALUES = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(?:0|[1-9][0-9]{0,17})|0x[0-9a-fA-F]{1,15}", "-+0123456789"),
    "float": (_NUMBER, "-+.0123456789"),
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
}
for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _name, (_pattern, _first) in _PLAIN_VALUES.items():
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})\\Z"), [*_first])

NESTING_LIMIT = 20


def parse(text: str) -> tuple[Any, dict[str, int], list[Finding]]:
    """(value, dotted key -> 1-based line, repeated keys and over-deep places) of a YAML text.

    Raises yaml.YAMLError for a text that is not YAML.
    """
    loader = _Loader(text)
    lines: dict[str, int] = {}
    findings: list[Finding] = []
    try:
        node = loader.get_single_node()
        if node is None:
            return None, lines, findings
        _walk(node, "", lines, findings, 0)
        return (None if findings else loader.construct_document(node)), lines, findings
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: str, lines: dict[str, int], findings: list[Finding], depth: int) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if depth > NESTING_LIMIT:
        findings.append((path, node.value, f"at most {NESTING_LIMIT} levels of nesting, and no loop of aliases"))
        return
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name = str(key.value)
            line = key.start_mark.line + 1
            below = f"{path}.{name}" if path else name
            if name in seen:
                findings.append((below, name, f"a key once; it stands in line {seen[name]} and in line {line}"))
            seen.setdefault(name, line)
            lines[below] = line
            _walk(value, below, lines, findings, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _walk(item, f"{path}[{position}]", lines, findings, depth + 1)


def dump(value: Any) -> str:
    """The value as YAML text that `parse` reads back to an equal value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
