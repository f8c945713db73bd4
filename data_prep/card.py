"""The data card of an exported data set: README.md with the header that the Hugging Face hub and `datasets` read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from data_prep.facts import Facts
from scout.errors import ConfigError, InputError, Problem, printable, refuse
from scout.lines import require_file

LISTED = 20


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where runs or labels are from, as a person states it."""

    origin: str = ""
    licence: str = ""
    """Licence id as the Hugging Face hub spells it, such as `mit`; empty when none is stated."""
    note: str = ""


PUBLIC: Mapping[str, Source] = {
    "who_and_when": Source("github.com/ag2ai/Agents_Failure_Attribution", "mit"),
    "agentrx": Source("github.com/microsoft/AgentRx", "mit", "its Magentic-One runs are those of Who&When"),
    "agentprocessbench": Source("github.com/RUCBM/AgentProcessBench", "", "no licence in the repository"),
    "agenterrorbench": Source("github.com/ulab-uiuc/AgentDebug", "", "its readme says MIT; copies state none"),
    "tracertraj": Source("github.com/bingreeky/AgenTracer", "", "labels come from a program, not from people"),
    "mystery_grid": Source("made by data_prep.collect", "apache-2.0"),
}
"""Sources that Scout has label readers or a generator for, by the name `data_prep.label --source` gives them."""

_ORIGINS = {
    "human": "people judged the steps",
    "world": "a rational observer that knows the rules of the world judged the steps",
    "injected": "a program put a known fault into the run, so that its step is known",
    "outcome": "derived from the outcome of the run",
    "model": "a model judged the steps",
}
_KNOWN = {
    "all_steps": "every step is judged",
    "first_mistake": "judged up to and including the first mistake; nothing is known of later steps",
    "some_failures": "some incorrect steps are known, perhaps not all",
    "final_only": "only the outcome is known",
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def read_sources(path: str | None) -> dict[str, Source]:
    """The known sources, and those of a YAML file: name -> origin, licence, note. Raises ConfigError for other keys."""
    found = dict(PUBLIC)
    if path is not None:
        try:
            given = yaml.safe_load(require_file(path).read_text("utf-8"))
            found |= msgspec.convert(given, dict[str, Source])
        except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise ConfigError(
                f"{printable(path)}: {printable(str(error), 300)}. "
                "Give a mapping of names of sources to origin, licence and note."
            ) from error
    return found


def without_licence(facts: Facts, sources: Mapping[str, Source]) -> list[str]:
    """Sources of the runs that state no licence."""
    return [name for name in facts.sources if not sources.get(name, Source()).licence]


def card(
    name: str,
    facts: Facts,
    sources: Mapping[str, Source],
    configurations: Mapping[str, Mapping[str, str]],
    split: Mapping[str, Any] | None,
) -> str:
    """The text of README.md.

    configurations: `runs`, and `rows` when there are some -> split -> path of its file in the folder.
    split: what `data_prep.split` noted, when it made the splits.
    """
    parts = [
        _header(name, facts, sources, configurations),
        f"# {_line(name)}\n\nRuns of agents with what is known of their steps and outcomes, made with Scout.",
        _use(configurations),
        "## Counts\n\n" + _counts(facts),
        "## Sources\n\n" + _sources(facts, sources),
        "## How the labels were made\n\n" + _labels(facts),
        "## Splits\n\n" + _splits(split),
        "## Left out\n\n" + _left_out(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _header(
    name: str, facts: Facts, sources: Mapping[str, Source], configurations: Mapping[str, Mapping[str, str]]
) -> str:
    licences = {sources.get(source, Source()).licence for source in facts.sources}
    total = sum(counts.runs for counts in facts.splits.values())
    header: dict[str, Any] = {
        "pretty_name": _line(name),
        # One id that holds for all of it, or none of the hub's ids does.
        "license": licences.pop() if len(licences) == 1 and "" not in licences else "other",
        "tags": ["agents", "trajectories", "process-supervision", "verifier"],
        "size_categories": [next((size for limit, size in _SIZES if total < limit), "n>1M")],
        "configs": [
            {
                "config_name": config,
                "data_files": [{"split": split, "path": path} for split, path in files.items()],
                **({"default": True} if config == "runs" else {}),
            }
            for config, files in configurations.items()
        ],
    }
    return "---\n" + yaml.safe_dump(header, sort_keys=False, allow_unicode=True) + "---"


def _use(configurations: Mapping[str, Mapping[str, str]]) -> str:
    lines = ["```python", "from datasets import load_dataset", 'runs = load_dataset("FOLDER", "runs")']
    if "rows" in configurations:
        lines.append('rows = load_dataset("FOLDER", "rows")')
    told = "\n".join([*lines, "```"])
    if "rows" in configurations:
        told += (
            "\n\n`rows` are prompts and replies to train on, one a window of a run; "
            "`make sft DATA=FOLDER/rows` takes them."
        )
    return told


def _counts(facts: Facts) -> str:
    head = ("split", "tasks", "runs", "steps", "with mistake", "clean", "not known", "passed", "failed", "unknown")
    told = _table(
        head,
        (
            (split, len(one.tasks), one.runs, one.steps, *(one.mistake[key] for key in head[4:7]),
             *(one.outcome[key] for key in head[7:]))
            for split, one in facts.splits.items()
        ),
    )  # fmt: skip
    if facts.rows:
        rows_head = ("rows of", "rows", "of runs", "with mistake", "clean", "steps correct", "steps incorrect", "cut")
        told += "\n\n" + _table(
            rows_head,
            (
                (split, one["rows"], len(facts.explained[split]), *(one[key] for key in rows_head[3:]))
                for split, one in facts.rows.items()
            ),
        )
    return told


def _sources(facts: Facts, sources: Mapping[str, Source]) -> str:
    told = _table(
        ("source", "runs", *facts.splits, "tasks", "licence", "origin", "note"),
        (
            (name, one.runs, *(one.splits[split] for split in facts.splits), len(one.tasks),
             stated.licence or "**not stated**", stated.origin or "not stated", stated.note)
            for name, one in facts.sources.items()
            for stated in [sources.get(name, Source())]
        ),
    )  # fmt: skip
    missing = without_licence(facts, sources)
    if missing:
        told += f"\n\nNo licence is stated for {_line(', '.join(missing))}: find out before you pass this data on."
    return told


def _labels(facts: Facts) -> str:
    if not facts.labels:
        return "No run has labels."
    told = _table(
        ("origin", "annotators", "known", "runs", "steps correct", "incorrect", "unlabelled", "with a reason"),
        (
            (origin, annotators or "-", known, made.runs, made.steps["correct"], made.steps["incorrect"],
             made.steps["unlabelled"], made.reasons)
            for (origin, annotators, known), made in sorted(facts.labels.items())
        ),
    )  # fmt: skip
    origins = dict.fromkeys(origin for origin, _, _ in sorted(facts.labels))
    known = dict.fromkeys(name for _, _, name in sorted(facts.labels))
    told += "\n\n" + "\n".join(f"- `{name}`: {_ORIGINS[name]}." for name in origins)
    told += "\n" + "\n".join(f"- `{name}`: {_KNOWN[name]}." for name in known)
    return told + (f"\n\n{facts.unlabelled} runs have no labels." if facts.unlabelled else "")


def _splits(split: Mapping[str, Any] | None) -> str:
    if split is None:
        return "They stand as they were given; how they were made is not recorded."
    held = ", ".join(f"`{_line(str(name))}`" for name in split["held_out"])
    near = split["leaks"]["near_duplicates"]
    joined = ", ".join(f"{why.replace('_', ' ')} {found['found']}" for why, found in split["joined"].items())
    shares = ", ".join(
        f"{name} {'not known' if share is None else f'{share:.3f}'}" for name, share in split["clean_share"].items()
    )
    return "\n".join(
        [
            f"By task, over all sources, with seed {split['seed']}: {split['test_tasks']} tasks for test and "
            f"{split['dev_tasks']} for dev{f', and all of {held} for test' if held else ''}.",
            "",
            f"- Kept together (pairs of runs): {joined}.",
            "- Shared between splits: no task, no task text whole or nearly, no run, no leak key. Held-out runs whose "
            f"steps are at least {near['threshold']:.0%} those of a run of another split: {near['found']} of "
            f"{near['compared']}.",
            f"- Share of clean runs among those that are judged: {shares}.",
        ]
    )


def _left_out(facts: Facts) -> str:
    lines = []
    for split, counts in facts.splits.items():
        missing = counts.runs - len(facts.explained[split]) if facts.rows and split in facts.rows else 0
        if missing:
            lines.append(
                f"- {missing} of {counts.runs} runs of {split} have no rows: their labels do not tell of each step, or "
                "no analysis agreed with them."
            )
    lines += _notes("Left out of runs while they were read", facts.left_out)
    lines += _notes("Warnings of the readers", facts.warnings)
    lines.append("- Of paths of the files that runs were read from only the name is kept.")
    return "\n".join(lines)


def _notes(title: str, notes: Mapping[str, int]) -> list[str]:
    if not notes:
        return []
    ordered = sorted(notes.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"- {title} (N is a number):", *(f"  - in {n} runs: {_line(note)}" for note, n in ordered[:LISTED])]
    return [*lines, *([f"  - and {len(ordered) - LISTED} other kinds"] if len(ordered) > LISTED else [])]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_line(str(cell)) for cell in line) + " |" for line in lines)


def _line(text: str) -> str:
    """A text of the data as it may stand in Markdown: on one line, short, no table cell or tag of its own."""
    return re.sub(r"([|<>`\[\]])", r"\\\1", printable(text, 200).replace("\n", " "))


def read_split(folder: Path) -> dict[str, Any] | None:
    """What `data_prep.split` noted in a folder, or None. Raises InputError when it is damaged or not complete."""
    path = folder / "split.json"
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InputError(f"{printable(str(path))}: {error}. Split the runs again.") from error
    wanted = ("seed", "test_tasks", "dev_tasks", "held_out", "joined", "leaks", "clean_share")
    missing = [
        Problem(str(path), name, "nothing", "what data_prep.split notes") for name in wanted if name not in found
    ]
    if missing:
        refuse(missing, hint="Split the runs again.")
    return found
