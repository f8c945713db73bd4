"""The command: verbs, help, exit codes; and the make and CI rules around it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eval import demo
from scout import cli, errors

ROOT = Path(__file__).resolve().parent.parent
EXISTING = [name for name, verb in cli.VERBS.items() if cli._exists(verb.module)]

VERB_MODULE = """
import errno, os, sys
from scout import errors

def configure(parser):
    parser.add_argument("--fail", default="")

def run(args):
    print('{"done": true}')
    if args.fail == "interrupt":
        raise KeyboardInterrupt
    if args.fail == "disk":
        raise OSError(errno.ENOSPC, "No space left on device")
    if args.fail == "import":
        import a_module_that_is_not_installed
    if args.fail == "defect":
        raise KeyError("bad \\x1b[31m value")
    if args.fail:
        raise getattr(errors, args.fail)("bad \\x1b[31m value")
    return errors.UNSCORED
"""


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A verb whose module ends as it is told."""
    (tmp_path / "a_verb_for_tests.py").write_text(VERB_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.VERBS, "probe", cli.Verb("a_verb_for_tests", "end as told", "scoutv probe --fail disk"))
    return "probe"


@pytest.mark.parametrize(
    ("fail", "code"),
    [
        ("", errors.UNSCORED),
        ("InputError", errors.INPUT),
        ("FormatError", errors.INPUT),
        ("FingerprintError", errors.INPUT),
        ("ConfigError", errors.USAGE),
        ("ServerError", errors.MACHINERY),
        ("NothingToLearnError", errors.GUARD),
        ("disk", errors.MACHINERY),
        ("import", errors.MACHINERY),
        ("defect", errors.MACHINERY),
        ("interrupt", errors.INTERRUPTED),
    ],
)
def test_a_verb_ends_with_one_message_and_its_exit_code(
    verb: str, capsys: pytest.CaptureFixture[str], fail: str, code: int
) -> None:
    assert cli.main([verb, "--fail", fail]) == code
    out, err = capsys.readouterr()
    assert out == '{"done": true}\n'
    assert err.count("scoutv:") == (1 if fail else 0)
    assert "\x1b" not in err and ("Traceback" in err) == (fail == "defect")


def test_usage_is_exit_code_2_and_cannot_carry_escapes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["no\x1b[2Jverb"], [verb, "--no-such-option\x1b[2J"]):
        assert cli.main(words) == errors.USAGE
        assert "\x1b" not in capsys.readouterr().err


def test_help_of_the_command_lists_only_verbs_that_exist(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.VERBS["ghost"] = cli.Verb("scout.no_such_package.command", "not there", "")
    try:
        assert cli.main(["--help"]) == errors.OK
    finally:
        del cli.VERBS["ghost"]
    out = capsys.readouterr().out
    assert verb in out and "ghost" not in out


@pytest.mark.parametrize("name", EXISTING)
def test_help_of_every_verb_shows_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == errors.OK
    assert f"example:\n  scoutv {name} " in capsys.readouterr().out


def test_examples_read_files_that_the_demo_makes(tmp_path: Path) -> None:
    """An example that is pasted has to find its input: what `make demo` leaves, a fixture, or an example before it."""
    run = Path("runs/demo")
    made = {path for stage in demo.plan(run, 0) for path in stage.outputs}
    made |= {run / "data" / f"{split}.jsonl.zst" for split in ("train", "dev", "test")}
    for verb in cli.VERBS.values():
        words = [word for word in verb.example.split() if word.startswith("runs/demo/")]
        assert {Path(word) for word in words} <= made, verb.example


def test_the_readme_shows_what_convert_prints(tmp_path: Path) -> None:
    blocks = re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    place = next(place for place, block in enumerate(blocks) if "scoutv convert" in block)
    command = blocks[place].splitlines()[0].split()
    assert command[0] == ".venv/bin/scoutv"
    words = [str(tmp_path / "runs.jsonl") if word == "/tmp/runs.jsonl" else word for word in command[1:]]
    ran = subprocess.run([sys.executable, "-m", "scout", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    printed = ran.stderr.replace(words[-1], "/tmp/runs.jsonl").splitlines()
    shown = [line for line in blocks[place + 1].splitlines() if line != "…"]
    assert [line for line in shown if line not in printed] == []


def test_python_dash_m_is_the_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from scout.cli import main; code = main(['--help']);"
        "assert not {'torch', 'trl', 'vllm', 'transformers'} & set(sys.modules); sys.exit(code)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
    version = subprocess.run([sys.executable, "-m", "scout", "--version"], capture_output=True, text=True, check=False)
    assert re.fullmatch(r"scout-verifier \d+\.\d+\.\d+\n", version.stdout)


def test_a_reader_that_leaves_early_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "def configure(parser): pass\ndef run(args):\n    for _ in range(200_000): print('x' * 20)\n    return 0\n"
    )
    code = (
        "import sys; from scout import cli; cli.VERBS['loud'] = cli.Verb('loud', 'talk', 'scoutv loud');"
        "sys.exit(cli.main(['loud']))"
    )
    loud = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert loud.stdout is not None and loud.stderr is not None
    loud.stdout.readline()
    loud.stdout.close()
    assert loud.stderr.read() == b""
    assert loud.wait(20) == errors.MACHINERY


def test_python_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P45: the example in the README is one that runs."""
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, "README.md", "exec"), {})


def test_rl_refuses_to_start_without_sft_and_says_so() -> None:
    command = ["make", "-o", "setup", "rl", "RUN=a-run-that-is-not-there"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "runs/a-run-that-is-not-there/sft/final is not there. Train it first: make sft" in result.stderr


SKIPPED = """
import pytest

@pytest.mark.vllm
def test_engine():
    pytest.skip("no engine")

@pytest.mark.data
def test_files(shared_data):
    assert shared_data.is_dir()
"""


def test_a_skipped_vllm_test_and_missing_data_fail_in_ci(tmp_path: Path) -> None:
    tests = tmp_path / "checkout" / "tests"
    tests.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    shutil.copy(ROOT / "pyproject.toml", tests.parent)
    (tests / "test_skipped.py").write_text(SKIPPED)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tests.parent,
        env={**os.environ, "SCOUT_REQUIRE_VLLM": "1", "SCOUT_REQUIRE_DATA": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 error" in result.stdout
    assert "2 tests collected" in result.stdout
    assert result.returncode != 0
