"""Size limits: no source file above 400 lines, no function above 70."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 70
FOLDERS = ("scout", "data_prep", "eval", "tests", "recipes", ".ci")


def too_long(path: Path) -> Iterator[str]:
    """One line for the file and one for each function above its limit."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > FILE_LINES:
        yield f"{path}: {lines} lines, at most {FILE_LINES}; split it by what its parts do"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES}"


def main() -> int:
    """1 when something is too long, after naming all of it."""
    files = sorted(path for folder in FOLDERS for path in Path(folder).rglob("*.py"))
    found = [line for path in files for line in too_long(path)]
    print(
        "\n".join(found)
        if found
        else f"{len(files)} files within {FILE_LINES} lines, functions within {FUNCTION_LINES}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
