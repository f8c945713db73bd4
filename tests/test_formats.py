"""Reading runs of other harnesses: what becomes a step, what is noted, what is refused."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from scout import formats, trajectory
from scout.errors import FormatError, InputError
from scout.trajectory import Outcome, Trajectory

FIXTURES = Path(__file__).parent / "fixtures"


def load(name: str | Path) -> list[Trajectory]:
    return list(formats.load(FIXTURES / name))


def save(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(name: str, call_id: str | None = None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


TALK = [message("user", "Do it."), *(message("assistant", f"Step {number}.") for number in (1, 2, 3))]


def atif(version: str = "ATIF-v1.5", **more: Any) -> dict[str, Any]:
    steps = [{"step_id": 1, "source": "user", "message": "Do it."}]
    steps += [{"step_id": number, "source": "agent", "message": f"Step {number}."} for number in (2, 3, 4)]
    return {"schema_version": version, "session_id": "s", "agent": {"name": "a"}, "steps": steps, **more}


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("atif/v1.2-split-turns.json", "atif"),
        ("atif/v1.5-string-ids.json", "atif"),
        ("atif/v1.8-parts-subagents.json", "atif"),
        ("chat/list.json", "chat"),
        ("chat/object.json", "chat"),
        ("chat/lines.jsonl", "chat"),
        ("runs/labelled.jsonl", "scout"),
    ],
)
def test_the_content_tells_the_format(name: str, format: str) -> None:
    assert formats.detect(FIXTURES / name) == format


def test_every_foreign_run_can_be_written_and_read_back(tmp_path: Path) -> None:
    names = sorted((FIXTURES / "atif").iterdir()) + sorted((FIXTURES / "chat").iterdir())
    runs = [run for name in names for run in load(name)]
    trajectory.write(tmp_path / "runs.jsonl", runs)
    assert list(trajectory.read(tmp_path / "runs.jsonl")) == runs
    assert list(formats.load(tmp_path / "runs.jsonl")) == runs


def test_one_turn_over_several_entries_is_one_step() -> None:
    (run,) = load("atif/v1.2-split-turns.json")
    assert [step.source_ref for step in run.steps] == [
        "v1.2-split-turns.json:2,3,4",
        "v1.2-split-turns.json:6",
        "v1.2-split-turns.json:5",
    ]
    assert run.steps[0].thought == "The file may not exist.\nI look at the file first."
    assert run.steps[0].action == 'Bash {"command":"ls"}\nBash {"command":"wc -l notes.txt"}'
    assert run.steps[0].observation == "Bash: notes.txt\nBash: 12 notes.txt"
    assert run.meta["agent_entries"] == 6
    assert run.meta["left_out"] == ["1 empty agent entries"]
    assert "put back at their time" in run.meta["warnings"][0]
    assert "3 tool calls but 2 results" in run.meta["warnings"]


def test_results_of_several_calls_stand_in_the_order_of_the_calls() -> None:
    (run,) = load("atif/v1.5-string-ids.json")
    assert run.task.text == "Answer in one word.\n\nWhich oven is hotter?"
    assert run.steps[0].action == 'read {"oven":1}\nread {"oven": 2}'
    assert run.steps[0].observation == "read: 210\nread: 190\nAre you sure?\nHanded over."
    assert (run.task.id, run.outcome) == ("bake", Outcome(True, 1.0))
    assert run.meta["left_out"] == ["sub-agent run in another place: helper.json"]


def test_copied_context_is_not_counted_twice() -> None:
    (run,) = load("atif/v1.5-continued.json")
    assert run.id == "long-1.cont-2"
    assert [step.thought for step in run.steps] == ["I go on.", "One more.", "Done."]
    assert "half sorted" not in run.task.text + run.steps[0].observation
    assert run.meta["left_out"] == [
        "1 agent entries copied from another file",
        "continuation of this run: part-3.json",
    ]


def test_embedded_sub_agents_are_runs_of_their_own() -> None:
    parent, child = load("atif/v1.8-parts-subagents.json")
    assert parent.task.text == "What is on the picture?\n[image]"
    assert parent.steps[0].observation == "a cat"
    assert (child.id, child.meta["parent"]) == ("parts-1/helper-1", "parts-1")
    assert child.outcome == Outcome()


@pytest.mark.parametrize("minor", range(9))
def test_atif_1_0_to_1_8_read_without_a_warning(tmp_path: Path, minor: int) -> None:
    """P41: both sides of each change of the format are read."""
    (run,) = formats.load(save(tmp_path / "run.json", atif(f"ATIF-v1.{minor}")))
    assert (len(run.steps), run.meta["warnings"]) == (3, [])


def test_a_newer_atif_version_warns_and_is_read(tmp_path: Path) -> None:
    """P41: an unknown newer version warns once and what is known is read."""
    (run,) = formats.load(save(tmp_path / "run.json", atif("ATIF-v1.9", brand_new=[1])))
    assert len(run.steps) == 3
    assert run.meta["warnings"] == ["ATIF-v1.9 is newer than 1.8; what is known of it was read"]


def test_a_harbor_trial_gives_task_id_and_outcome(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    result = {"task_name": "bake", "trial_name": "bake__7", "verifier_result": {"rewards": {"reward": 0.0}}}
    save(tmp_path / "result.json", result)
    (run,) = formats.load(save(tmp_path / "agent" / "trajectory.json", atif()))
    assert (run.id, run.task.id, run.outcome) == ("bake__7", "bake", Outcome(False, 0.0))


def test_several_calls_in_a_chat_turn_are_one_step() -> None:
    (run,) = load("chat/list.json")
    assert run.task.text == "You book tables.\n\nA table for two, please."
    assert [step.source_ref for step in run.steps] == ["list.json:2", "list.json:5", "list.json:8"]
    assert run.steps[0].action == 'free {"day": "Mon"}\nfree {"day": "Tue"}'
    assert run.steps[0].observation == "free: none\nfree: 19:00"
    assert run.steps[1].observation == "Yes.\nAnd a window seat."
    assert run.outcome == Outcome()


def test_calls_and_results_are_found_in_content_parts() -> None:
    (run,) = load("chat/object.json")
    assert run.steps[0].thought == "I need data.\nOne moment."
    assert [step.action for step in run.steps] == ['forecast {"town":"Ulm"}', "note {}", ""]
    assert [step.observation for step in run.steps] == ["dry", "ok", ""]
    assert run.meta["left_out"] == ["1 image_url parts of messages", "keys beside the messages: unknown_key"]


def test_unknown_outcome_is_not_failed() -> None:
    runs = load("chat/lines.jsonl")
    assert [run.outcome.passed for run in runs] == [True, False, None, None]
    assert [run.outcome.score for run in runs] == [1.0, 0.0, 0.4, None]
    assert [run.id for run in runs] == ["lines:4:0", "lines:4:1", "lines:5:0", "lines:6:0"]
    assert len({run.task.id for run in runs}) == 3
    assert runs[1].steps[0].source_ref == "lines.jsonl:3:2"


def test_bare_task_numbers_of_two_benchmarks_do_not_meet(tmp_path: Path) -> None:
    ids = []
    for rules in ("Airline rules.", "Shop rules."):
        run = {"task_id": 1, "messages": [message("system", rules), *TALK]}
        ids.append(next(formats.load(save(tmp_path / "run.json", run))).task.id)
    assert ids[0] != ids[1]


def test_a_result_is_never_shown_before_the_agent_saw_it(tmp_path: Path) -> None:
    talk = [
        message("user", "Go."),
        message("assistant", "", tool_calls=[call("slow", "a")]),
        message("assistant", "I do not wait."),
        message("tool", "late", tool_call_id="a"),
        message("assistant", "Now I know."),
    ]
    (run,) = formats.load(save(tmp_path / "run.json", talk))
    assert [step.observation for step in run.steps] == ["", "late", ""]


@pytest.mark.parametrize(
    ("talk", "warning"),
    [
        (TALK[:3], "fewer than 3 agent steps (2): check that the file holds the whole run"),
        ([*TALK, message("assistant", "", tool_calls=[call("a", "1")])], "1 tool calls but 0 results"),
        (
            [
                *TALK,
                *[message("assistant", "", tool_calls=[call("a", "1")]), message("tool", "", tool_call_id="1")] * 2,
            ],
            "call ids used more than once: '1' (steps 4, 5)",
        ),
        (
            [*TALK, message("assistant", "", tool_calls=[call("a", "1")]), message("tool", "", tool_call_id="2")],
            "step 4: result for call '2', which no step made",
        ),
        (TALK[1:], "no task text was found"),
    ],
)
def test_doubts_about_a_run_are_warnings(tmp_path: Path, talk: list[Any], warning: str) -> None:
    """P42 duplicate or dangling call ids, P43 a trajectory that is not one."""
    (run,) = formats.load(save(tmp_path / "run.json", talk))
    assert run.meta["warnings"] == [warning]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("shape", ["object", "indented", "array", "lines", "lines of lists", "one line", "with mark"])
def test_every_shape_of_file_is_read(tmp_path: Path, shape: str, suffix: str) -> None:
    run = {"messages": TALK}
    text, runs = {
        "object": (json.dumps(run), 1),
        "indented": ("\n" + json.dumps(run, indent=2), 1),
        "array": (json.dumps([run, run]), 2),
        "lines": (f"{json.dumps(run)}\n\n{json.dumps(run)}\n", 2),
        "lines of lists": (f"{json.dumps(TALK)}\n{json.dumps(TALK)}", 2),
        "one line": (json.dumps(TALK) + "\n", 1),
        "with mark": ("\ufeff" + json.dumps(run), 1),
    }[shape]
    compressors: dict[str, Callable[[bytes], bytes]] = {
        "": lambda data: data,
        ".gz": gzip.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    path = tmp_path / f"runs.{'jsonl' if 'line' in shape else 'json'}{suffix}"
    path.write_bytes(compressors[suffix](text.encode()))
    found = list(formats.load(path))
    assert [len(item.steps) for item in found] == [3] * runs
    assert len({item.id for item in found}) == runs


def test_what_python_writes_but_json_forbids_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"messages": TALK, "cost": float("nan")}).replace("Step 1.", "Step \\ud800."))
    (run,) = formats.load(path)
    assert run.steps[0].thought == "Step ?."


def test_all_problems_of_a_file_come_in_one_error(tmp_path: Path) -> None:
    talk = [message("human", "Do it."), message("assistant", 7), *TALK, {"content": "no role"}]
    path = save(tmp_path / "run.json", {"messages": talk})
    with pytest.raises(FormatError) as caught:
        formats.load(path, "chat").__next__()
    told = str(caught.value)
    assert told.startswith("3 problems:")
    assert f"{path}:0: role: found 'human'; allowed: one of system, developer, user, assistant, tool, function" in told
    assert f"{path}:1: content: found 7; allowed: text or" in told
    assert f"{path}:6: role: found nothing; allowed: this field is needed" in told


def test_a_bad_line_anywhere_yields_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join([json.dumps({"messages": TALK})] * 3 + ['{"messages": [']))
    runs = formats.load(path)
    with pytest.raises(FormatError, match=r"runs\.jsonl:4: found no JSON \(Input data was truncated\)"):
        next(runs)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "an empty file"),
        (b"\n \n", "an empty file"),
        (b'{"messages": [{"role": "us', "no JSON"),
        (b"[", "no JSON"),
        (b"not json", "no JSON"),
        (b"\xff\xfe\x00{", "UTF-8"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep"),
        (b"{}", "looked"),
        (b"[]", "looked"),
        (b"7", "looked"),
        (b'"text"', "looked"),
        (b"null", "looked"),
        (b'[{"messages": 3}]', "looked"),
        (b'{"messages": [{"role": "system", "content": "x"}]}', "no assistant message"),
        (b'{"messages": [{"role": "user", "content": "x"}], "reward": "much"}', "reward: found 'much'"),
        (b'{"schema_version": "ATIF-v1.5", "steps": []}', "no entry of the agent"),
        (b'{"schema_version": "ATIF-v1.5", "steps": {}}', "steps: found {}"),
        (
            b'{"schema_version": "ATIF-v1.5", "steps": [{"source": "robot"}, {"source": "agent", "message": 3}]}',
            "robot",
        ),
        (b"\x1f\x8b broken", "damaged"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises((FormatError, InputError)) as caught:
        list(formats.load(path))
    text = str(caught.value)
    if told == "looked":
        assert all(f"{name}: {reader.LOOKED_FOR}" in text for name, reader in formats.READERS.items())
    else:
        assert told in text
    assert "run.json" in text
    assert len(text) < 2500


_WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        "messages traj role content tool_calls function name arguments id steps source agent user assistant "
        "schema_version ATIF-v1.5 message observation results subagent_trajectories task_id reward "
        "is_copied_context timestamp",
    )
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=25,
)
_LIKE_A_RUN = st.fixed_dictionaries(
    {
        "schema_version": st.just("ATIF-v1.5"),
        "steps": st.lists(st.fixed_dictionaries({"source": st.just("agent"), "message": _VALUES}), max_size=4)
        | _VALUES,
        "messages": st.lists(st.fixed_dictionaries({"role": _WORDS, "content": _VALUES}), max_size=4) | _VALUES,
    }
)


@settings(max_examples=150)
@given(value=_VALUES | _LIKE_A_RUN, format=st.sampled_from([None, *formats.READERS]))
def test_whatever_a_file_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: Any, format: str | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(value))
    try:
        runs = list(formats.load(path, format))
    except (FormatError, InputError) as error:
        assert "any.json" in str(error)
    else:
        assert runs
        assert all(trajectory.loads(trajectory.dumps(run)) == run for run in runs)


def test_sub_agents_nested_without_end_are_refused(tmp_path: Path) -> None:
    document = atif()
    for _ in range(300):
        document = atif(subagent_trajectories=[document])
    try:
        assert len(list(formats.load(save(tmp_path / "run.json", document)))) == 301
    except FormatError as error:
        assert "nested too deep" in str(error)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match=r"no such file|not a regular file"):
            formats.load(path)


def test_an_unknown_format_name_lists_the_known_ones() -> None:
    with pytest.raises(FormatError, match="scout, atif, mini_swe_agent, who_and_when, swe_agent, "):
        formats.load(FIXTURES / "chat/list.json", "chatt")


def test_ten_thousand_steps(tmp_path: Path) -> None:
    talk = [message("user", "Go."), *(message("assistant", f"Step {number}.") for number in range(10_000))]
    (run,) = formats.load(save(tmp_path / "run.json", talk))
    assert len(run.steps) == 10_000
    assert trajectory.problems(run) == []


def test_a_large_observation_is_read_whole(tmp_path: Path) -> None:
    big = "x" * 50_000_000
    (run,) = formats.load(save(tmp_path / "run.json", [*TALK, message("tool", big)]))
    assert len(run.steps[-1].observation) == 50_000_000
