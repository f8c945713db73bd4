"""Trajectory files: strict reading that names every problem, writing that is whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from scout import Labels, Outcome, Step, Task, Trajectory, lines, trajectory
from scout.errors import InputError


def run(id: str = "a", steps: int = 2, **fields: Any) -> Trajectory:
    return Trajectory(
        id, Task("find the key", "t1"), tuple(Step(n, "look", "go", "a wall") for n in range(1, steps + 1)), **fields
    )


def raw(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "task": {"text": "t"}, "steps": [{"index": 1}, {"index": 2}]} | fields


def message(path: Path, *rows: Any) -> str:
    """What `read` says about a file with these rows; bytes are written as they are."""
    path.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    with pytest.raises(InputError) as caught:
        trajectory.read(path)
    return str(caught.value)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def runs(draw: st.DrawFn) -> Trajectory:
    count = draw(st.integers(0, 6))
    steps = tuple(
        Step(index, draw(TEXT), draw(TEXT), draw(TEXT), draw(st.none() | TEXT)) for index in range(1, count + 1)
    )
    names = draw(st.lists(st.sampled_from(["correct", "incorrect"]), min_size=count, max_size=count))
    first = names.index("incorrect") + 1 if "incorrect" in names else None
    sizes = tuple(draw(st.none() | st.integers(0, 9)) for _ in steps) if draw(st.booleans()) else ()
    labels = draw(st.none() | st.just(Labels(tuple(names), first, "all_steps", "world", proof_sizes=sizes)))
    outcome = Outcome(draw(st.none() | st.booleans()), draw(st.none() | st.floats(-1e9, 1e9)))
    meta = draw(st.dictionaries(TEXT, JSON, max_size=3))
    return Trajectory(draw(TEXT.filter(bool)), Task(draw(TEXT), draw(st.none() | TEXT)), steps, outcome, labels, meta)


@given(runs())
def test_loads_of_dumps_is_identity(one: Trajectory) -> None:
    assert trajectory.loads(trajectory.dumps(one)) == one
    assert "\n" not in trajectory.dumps(one)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@given(st.lists(runs(), min_size=1, max_size=4, unique_by=lambda one: one.id))
def test_read_of_write_is_identity(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, many: list[Trajectory]
) -> None:
    path = tmp_path_factory.mktemp("runs") / f"runs.jsonl{suffix}"
    assert trajectory.write(path, many) == len(many)
    assert list(trajectory.read(path)) == many


@given(st.binary(), st.integers(0, 400), st.binary(max_size=3), st.binary(max_size=4).map(lambda magic: magic or b"{"))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int, patch: bytes, start: bytes
) -> None:
    path = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    line = trajectory.dumps(run(labels=Labels(("correct", "incorrect"), 2))).encode()
    bent = line[:place] + patch + line[place + len(patch) :]
    packed = gzip.compress(line), zstandard.compress(line)
    for content in (noise, bent, start + noise, *(one[:place] + patch + one[place:] for one in packed)):
        path.write_bytes(content)
        try:
            read = list(trajectory.read(path))
        except InputError as error:
            assert all(char.isprintable() or char == "\n" for char in str(error))
        else:
            assert read and not any(trajectory.problems(one) for one in read)


def test_compression_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    line = trajectory.dumps(run()).encode()
    for packed in (line, gzip.compress(line), zstandard.compress(line), b"\xef\xbb\xbf" + line + b"\r\n\n"):
        path.write_bytes(packed)
        assert list(trajectory.read(path)) == [run()]
    # Two frames in one file, as `cat a.zst b.zst` makes them.
    path.write_bytes(zstandard.compress(line + b"\n") + zstandard.compress(trajectory.dumps(run("b")).encode()))
    assert [one.id for one in trajectory.read(path)] == ["a", "b"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_a_cut_off_archive_is_refused(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "runs.jsonl"
    packed = pack(b"".join(trajectory.dumps(run(str(n), meta={"n": n * 7919})).encode() + b"\n" for n in range(500)))
    path.write_bytes(packed[:-20])
    with pytest.raises(InputError, match="damaged or cut off"):
        trajectory.read(path)
    path.write_bytes(packed[: len(packed) // 2] + b"\x00" * 40 + packed[len(packed) // 2 + 40 :])
    with pytest.raises(InputError, match=r"damaged|problem"):
        trajectory.read(path)


def test_all_problems_of_a_file_come_at_once(tmp_path: Path) -> None:
    text = message(
        tmp_path / "runs.jsonl",
        {"id": "a"},
        raw(id="b", steps=[{"index": "x"}, {"index": 2, "thougth": "y"}], task={"text": 3}),
        raw(id="c", labels={"step_labels": ["correct", "wrong"]}),
        [1],
        b'{"id": "\xff"}',
        b'{"id": "d", "task"',
    )
    assert text.startswith("9 problems:")
    for part in (
        "runs.jsonl:1: task: found nothing",
        "runs.jsonl:2: steps[0].index: found 'x'; allowed: a whole number",
        "runs.jsonl:2: steps[1].thougth: found 'y'; allowed: no such key here; did you mean thought?",
        "runs.jsonl:2: task.text: found 3; allowed: text",
        "runs.jsonl:3: labels.step_labels[1]: found 'wrong'; allowed: one of correct, incorrect, unlabelled",
        "runs.jsonl:4: found [1]",
        "runs.jsonl:5: byte 8 of the line: found b'\\xff'; allowed: UTF-8 text",
        "runs.jsonl:6: found a line that stops after",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"steps": [{"index": 2}, {"index": 1}]}, "steps[0].index: found 2; allowed: 1"),
        ({"steps": [{"index": 1}, {"index": 1}]}, "steps[1].index: found 1; allowed: 2"),
        ({"steps": [{"index": True}]}, "steps[0].index: found True; allowed: a whole number"),
        ({"steps": "none"}, "steps: found 'none'; allowed: a list of"),
        ({"id": ""}, "id: found ''"),
        ({"schema_version": 2}, "schema_version: found 2; allowed: 1"),
        ({"outcome": {"passed": "yes"}}, "outcome.passed: found 'yes'; allowed: true or false or null"),
        ({"labels": {"step_labels": ["correct"] * 3}}, "labels.step_labels: found '3 labels'; allowed: 2"),
        ({"labels": {"step_labels": ["correct"] * 2, "first_mistake": 3}}, "labels.first_mistake: found 3"),
        ({"labels": {"step_labels": ["correct"] * 2, "first_mistake": 1}}, "labels.first_mistake: found 1"),
        ({"labels": {"step_labels": ["correct", "incorrect"]}}, "labels.first_mistake: found None; allowed: 2"),
        ({"labels": {"step_labels": ["correct", "unlabelled"]}}, "labels.step_labels[1]: found 'unlabelled'"),
        ({"labels": {"step_labels": ["correct"] * 2, "known": "final_only"}}, "labels.known: found 'final_only'"),
        ({"labels": {"step_labels": ["correct"] * 2, "reasons": ["x"]}}, "labels.reasons: found '1 entries'"),
        ({"labels": {"step_labels": ["correct"] * 2, "proof_sizes": [-1, None]}}, "labels.proof_sizes[0]: found -1"),
        ({"labels": {"step_labels": ["correct"] * 2, "origin": "oracle"}}, "labels.origin: found 'oracle'"),
        ({"\x1b[2Jid": 1}, "\\x1b[2Jid: found 1; allowed: no such key"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(tmp_path: Path, fields: dict[str, Any], part: str) -> None:
    text = message(tmp_path / "runs.jsonl", raw(**fields))
    assert part in text
    assert "\x1b" not in text


def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    text = message(tmp_path / "runs.jsonl", raw(), raw(id="b"), raw())
    assert "runs.jsonl:3: id: found 'a'; allowed: an id that no other line has; line 1 has it too" in text


def test_deep_nesting_is_refused_not_a_crash(tmp_path: Path) -> None:
    deep = b'{"id":"a","task":{"text":"t"},"steps":[],"meta":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    assert "runs.jsonl:1" in message(tmp_path / "runs.jsonl", deep)


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", gzip.compress(b""), zstandard.compress(b"")])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "found an empty file; allowed: one Trajectory a line" in message(tmp_path / "runs.jsonl", content)


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, part in ((tmp_path / "no.jsonl", "no such file"), (tmp_path, "regular"), (tmp_path / "pipe", "regular")):
        with pytest.raises(InputError, match=part):
            trajectory.read(path)


def test_a_line_above_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_LIMIT_BYTES", 1000)
    assert "longer than 1000 bytes" in message(tmp_path / "runs.jsonl", zstandard.compress(b"[" * 5000))


def test_ten_thousand_steps_and_a_50_mb_observation_are_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl.zst"
    labels = Labels(("correct",) * 10_000)
    long = run("long", 10_000, labels=labels)
    big = Trajectory("big", Task("t"), (Step(1, observation="x" * 50_000_000),))
    start = time.perf_counter()
    assert trajectory.write(path, [long, big]) == 2
    assert list(trajectory.read(path)) == [long, big]
    assert time.perf_counter() - start < 10


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    trajectory.write(path, [run("old")])

    def interrupted() -> Iterator[Trajectory]:
        yield run("new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trajectory.write(path, interrupted())
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for bad in (
        [run("a"), run("a")],
        [run(outcome=Outcome(score=float("nan")))],
        [run(id="\ud800")],
        [run(id="")],
        [run(meta={"big": 10**5000})],
        [run(meta={"nested": nested})],
        [run(meta={"object": object()})],
    ):
        with pytest.raises(InputError):
            trajectory.write(path, bad)
    assert [one.id for one in trajectory.read(path)] == ["old"]
    assert os.listdir(tmp_path) == ["runs.jsonl"]


def test_write_makes_folders_and_equal_bytes(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst"):
        first, second = tmp_path / "new" / f"a.jsonl{suffix}", tmp_path / "new" / f"b.jsonl{suffix}"
        trajectory.write(first, [run()])
        trajectory.write(second, [run()])
        assert first.read_bytes() == second.read_bytes()


def test_write_refuses_what_is_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="regular file"):
        trajectory.write("/dev/null", [run()])
    with pytest.raises(InputError, match="regular file"):
        trajectory.write(tmp_path, [run()])


@pytest.mark.parametrize(
    ("labels", "has_mistake"),
    [
        (None, None),
        (Labels(("correct", "correct")), False),
        (Labels(("correct", "incorrect"), 2), True),
        (Labels(("correct", "correct"), None, "first_mistake"), False),
        (Labels(("incorrect", "unlabelled"), 1, "first_mistake"), True),
        (Labels(("unlabelled", "incorrect"), None, "some_failures"), True),
        (Labels(("unlabelled", "correct"), None, "some_failures"), None),
        (Labels(("unlabelled", "unlabelled"), None, "final_only"), None),
    ],
)
def test_has_mistake_is_none_where_labels_do_not_tell(labels: Labels | None, has_mistake: bool | None) -> None:
    one = run(labels=labels)
    assert trajectory.problems(one) == []
    assert one.has_mistake is has_mistake


def test_import_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import scout; took = time.perf_counter() - start\n"
        "heavy = {'torch', 'trl', 'vllm', 'transformers', 'numpy', 'yaml', 'httpx', 'rich'} & set(sys.modules)\n"
        "print(took); assert not heavy, heavy"
    )
    took = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(took) < 0.3
