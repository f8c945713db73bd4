"""Training rows: read and checked against the recipe, rendered to token ids, handed to TRL already tokenised."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scout import records
from scout.config import Recipe
from scout.errors import InputError, Problem, printable, refuse
from scout.lines import open_lines
from scout.prompt import PROMPT_VERSION
from scout.records import Finding

if TYPE_CHECKING:
    from datasets import Dataset

SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz", ".parquet")
IGNORED = -100
"""Label of a token that carries no loss; PyTorch's own number."""


class Message(msgspec.Struct, frozen=True):
    """One chat turn of a prompt."""

    role: str
    content: str


class Row(msgspec.Struct, frozen=True):
    """One window of one run with the reply to learn; further columns of the file are passed over."""

    id: str
    trajectory_id: str
    task_id: str | None
    split: str
    prompt: tuple[Message, ...]
    completion: str
    indices: tuple[int, ...]
    """Steps shown in the prompt, 1-based in the run."""
    gold: tuple[str, ...]
    """Their labels, in the same order."""
    prompt_style: str
    prompt_version: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat templates want it."""
        return [{"role": turn.role, "content": turn.content} for turn in self.prompt]

    @property
    def labels(self) -> dict[int, str]:
        """Step index -> gold label."""
        return dict(zip(self.indices, self.gold, strict=True))


class Prepared(msgspec.Struct, frozen=True):
    """A row as the model sees it."""

    row: Row
    ids: tuple[int, ...]
    prompt_length: int
    """The first so many ids are the prompt; all others are the reply, its end token included."""

    @property
    def reply_length(self) -> int:
        """Tokens of the reply, its end token included."""
        return len(self.ids) - self.prompt_length


def rows_file(folder: Path, split: str) -> Path | None:
    """The file of that split in a data folder, or None. Raises InputError when there are two."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{split}{suffix}").is_file()]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"{printable(str(folder))}: {names} are all there. Keep one file for the split {split!r}.")
    return found[0] if found else None


def read_rows(folder: Path, split: str, recipe: Recipe) -> list[Row]:
    """All rows of a split; empty when the folder has no file for it. Raises one InputError with all problems."""
    path = rows_file(folder, split)
    if path is None:
        return []
    rows: list[Row] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    for where, row, findings in _parsed(path):
        if row is not None:
            findings = _row_findings(row, split, recipe, seen)
            rows.append(row)
        problems.extend(records.problem(where, finding) for finding in findings)
    if problems:
        hint = "Nothing was trained. Make the rows again with `python -m data_prep.explain` and this recipe's settings."
        refuse(problems, hint=hint)
    if not rows:
        raise InputError(f"{printable(str(path))}: holds no rows. Make them with `python -m data_prep.explain`.")
    return rows


def _parsed(path: Path) -> Iterator[tuple[str, Row | None, list[Finding]]]:
    if path.suffix != ".parquet":
        for number, line in open_lines(path):
            yield f"{path.name}:{number}", *records.parse(line, Row, lambda _: [])
        return
    from datasets import Dataset

    for number, record in enumerate(Dataset.from_parquet(str(path)), start=1):
        findings = [finding for finding in records.explain(Row, record) if not _is_extra(finding)]
        yield f"{path.name} row {number}", None if findings else msgspec.convert(record, Row), findings


def _is_extra(finding: Finding) -> bool:
    return finding[2].startswith("no such key")


def _row_findings(row: Row, split: str, recipe: Recipe, seen: set[str]) -> list[Finding]:
    """What is wrong with a well-typed row; its id is added to `seen`."""
    found: list[Finding] = []
    if row.id in seen:
        found.append(("id", row.id, "an id that no other row has"))
    seen.add(row.id)
    if row.split != split:
        found.append(("split", row.split, f"{split}, as the file's name says"))
    if not row.prompt or not row.completion.strip():
        found.append(("prompt" if not row.prompt else "completion", "nothing", "a text"))
    if len(row.gold) != len(row.indices) or not row.indices:
        found.append(("gold", row.gold, f"one label for each of {len(row.indices)} indices, at least one"))
    if list(row.indices) != sorted(set(row.indices)):
        found.append(("indices", row.indices, "rising step numbers"))
    if not set(row.gold) <= {"correct", "incorrect", "unlabelled"}:
        found.append(("gold", row.gold, "correct, incorrect or unlabelled"))
    elif set(row.gold) == {"unlabelled"}:
        found.append(("gold", row.gold, "at least one labelled step"))
    if row.prompt_style != recipe.scout.style:
        found.append(("prompt_style", row.prompt_style, f"{recipe.scout.style}, the recipe's scout.style"))
    if row.prompt_version != PROMPT_VERSION:
        found.append(("prompt_version", row.prompt_version, f"{PROMPT_VERSION}, the version of this Scout"))
    return found


def prepare(rows: Iterable[Row], tokenizer: Any) -> list[Prepared]:
    """The rows as token ids, rendered by `scout.render`, the one place that renders."""
    from scout.render import render_row

    prepared = []
    for row in rows:
        try:
            rendered = render_row(tokenizer, row.messages, row.completion)
        except InputError as error:
            raise InputError(f"row {printable(row.id)}: {error}") from error
        prepared.append(Prepared(row, rendered.ids, rendered.prompt_length))
    return prepared


def over_limit(prepared: Sequence[Prepared], recipe: Recipe) -> list[Problem]:
    """Rows longer than the recipe's prompt or reply limit. TRL would cut them in silence, and with them the verdict."""
    limits = recipe.scout
    problems = []
    for item in prepared:
        for field, found, limit in (
            ("prompt", item.prompt_length, limits.prompt_tokens),
            ("completion", item.reply_length, limits.completion_tokens),
        ):
            if found > limit:
                allowed = f"{limit} tokens or fewer (scout.{field}_tokens)"
                problems.append(Problem(f"row {item.row.id}", field, f"{found} tokens", allowed))
    return problems


def require_fit(prepared: Sequence[Prepared], recipe: Recipe) -> None:
    """Raises InputError naming the rows that are over a limit of the recipe and the least limits that would do."""
    problems = over_limit(prepared, recipe)
    if not problems:
        return
    prompt = max(item.prompt_length for item in prepared)
    reply = max(item.reply_length for item in prepared)
    hint = (
        f"Rows are never cut here. Make them shorter with `python -m data_prep.explain` and a smaller budget, or set "
        f"scout.prompt_tokens={prompt} scout.completion_tokens={reply}."
    )
    refuse(problems, hint=hint)


def supervised(prepared: Sequence[Prepared]) -> Dataset:
    """The data set that SFTTrainer takes as it is: ids, and labels that are the ids of exactly the reply."""
    from datasets import Dataset

    return Dataset.from_list([{"input_ids": list(item.ids), "labels": _labels(item)} for item in prepared])


def _labels(item: Prepared) -> list[int]:
    return [IGNORED] * item.prompt_length + list(item.ids[item.prompt_length :])


def require_supervised(dataset: Any, prepared: Sequence[Prepared]) -> None:
    """Raises InputError with ids when TRL's prepared data set is not our rows, each with its whole reply supervised."""
    if len(dataset) != len(prepared):
        raise InputError(f"TRL kept {len(dataset)} of {len(prepared)} rows. Check the trainer keys that touch data.")
    problems = [
        Problem(f"row {item.row.id}", "labels", "other tokens than the reply", "exactly the reply's tokens")
        for item, made in zip(prepared, dataset, strict=True)
        if made["input_ids"] != list(item.ids) or made["labels"] != _labels(item)
    ]
    if problems:
        refuse(problems, hint="TRL changed these rows. Check the trainer keys that touch data.")


def balanced(rows: Sequence[Row], clean_share: float, seed: int) -> list[Row]:
    """The rows in random order without so many clean ones that those make up more than `clean_share` of the rest."""
    shuffled = random.Random(seed).sample(list(rows), len(rows))
    faulty = sum("incorrect" in row.gold for row in shuffled)
    room = len(shuffled) if clean_share >= 1 else int(faulty * clean_share / (1 - clean_share))
    kept = []
    for row in shuffled:
        clean = "incorrect" not in row.gold
        room -= clean
        if not clean or room >= 0:
            kept.append(row)
    return kept


def promptings(prepared: Sequence[Prepared]) -> Dataset:
    """The data set that GRPOTrainer takes: the chat prompt and what the reward needs to know."""
    from datasets import Dataset

    return Dataset.from_list(
        [
            {
                "prompt": item.row.messages,
                "row_id": item.row.id,
                "indices": list(item.row.indices),
                "gold": list(item.row.gold),
            }
            for item in prepared
        ]
    )


def require_same_prompts(prepared: Sequence[Prepared], render: Callable[[list[dict[str, str]]], list[int]]) -> None:
    """Raises InputError when TRL would render a prompt to other ids than `scout.render` does.

    render: chat messages -> ids as the trainer makes them.
    """
    problems = [
        Problem(f"row {item.row.id}", "prompt", "other tokens in TRL's rendering", "the tokens of scout.render")
        for item in prepared
        if render(item.row.messages) != list(item.ids[: item.prompt_length])
    ]
    if problems:
        refuse(problems, hint="The chat template depends on settings that the trainer does not know.")


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
