"""Scout: find the first mistake in an agent's run, and choose the best of several runs."""

from scout.errors import (
    ConfigError,
    FingerprintError,
    FormatError,
    InputError,
    NothingToLearnError,
    ScoutError,
    ServerError,
)
from scout.trajectory import Labels, Outcome, Step, Task, Trajectory
from scout.verdict import Cut, StepVerdict, Usage, Verdict

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Cut",
    "FingerprintError",
    "FormatError",
    "InputError",
    "Labels",
    "NothingToLearnError",
    "Outcome",
    "ScoutError",
    "ServerError",
    "Step",
    "StepVerdict",
    "Task",
    "Trajectory",
    "Usage",
    "Verdict",
    "__version__",
]
