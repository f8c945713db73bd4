"""What all tests share: no network, few threads, and skips that CI does not let pass."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell starts background jobs with Ctrl-C ignored, and they hand that down; the tests of Ctrl-C need it to work.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Before anything imports torch or a hub client, which read these once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, str(min(2, os.cpu_count() or 1)))

ROOT = Path(__file__).resolve().parent.parent

# Times on a busy machine say nothing about the code, so examples have no deadline.
settings.register_profile("scout", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("scout")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public trajectory files beside the checkout; the test is skipped where there is none."""
    folder = ROOT.parent / "shared" / "data"
    if folder.is_dir():
        return folder
    reason = "no folder ../shared/data with public trajectory files"
    if os.environ.get("SCOUT_REQUIRE_DATA") == "1":
        pytest.fail(f"{reason}, and SCOUT_REQUIRE_DATA=1")
    pytest.skip(reason)


def _vllm_is_required() -> bool:
    return os.environ.get("SCOUT_REQUIRE_VLLM") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With SCOUT_REQUIRE_VLLM=1 a skipped vLLM test is a failed one."""
    report = yield
    if report.skipped and _vllm_is_required() and item.get_closest_marker("vllm"):
        report.outcome = "failed"
        report.longrepr = f"a vLLM test may not be skipped here: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself because vllm does not import."""
    report = yield
    if report.skipped and _vllm_is_required() and "vllm" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"a vLLM module may not be skipped here: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests there are: one that is not collected protects nothing."""
    session = terminalreporter._session
    if session is not None:
        terminalreporter.write_line(f"{session.testscollected} tests collected")
