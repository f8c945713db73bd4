"""Bodies of the HTTP interface, and reading them with every problem named."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scout import records, trajectory
from scout.errors import Problem
from scout.trajectory import Trajectory
from scout.verdict import Verdict

BODY_BYTES = 256 << 20
"""A larger request is refused before it is read."""

SHOWN_PROBLEMS = 100


class ScoreRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of POST /v1/score and POST /v1/rerank, whose trajectories are the candidates of one task."""

    trajectories: list[msgspec.Raw]


class ScoreReply(msgspec.Struct, frozen=True):
    """Answer of POST /v1/score; verdicts in the order of the trajectories."""

    verdicts: tuple[Verdict, ...]


class RerankReply(msgspec.Struct, frozen=True):
    """Answer of POST /v1/rerank."""

    order: tuple[str, ...]
    """Trajectory ids, best first; unscored ones last."""
    best: str | None
    """None when no candidate can be ranked."""
    tie: bool
    reason: str
    verdicts: tuple[Verdict, ...]
    """In the order of the trajectories."""


class About(msgspec.Struct, frozen=True):
    """Answer of GET /version."""

    model: str
    digest: str
    """Of the model folder; changes when anything in it does."""
    fingerprint: str
    prompt_version: str
    threshold: float
    selector: str
    versions: dict[str, str]
    """Package -> version."""


class Failure(msgspec.Struct, frozen=True):
    """What went wrong. Never holds a path or a traceback of the server."""

    type: str
    message: str
    problems: tuple[Problem, ...] = ()


class ErrorReply(msgspec.Struct, frozen=True):
    """Body of every answer that is no success."""

    error: Failure


class RequestError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.failure = Failure("InputError", message, tuple(problems[:SHOWN_PROBLEMS]))


def read_request(body: bytes) -> list[Trajectory]:
    """The trajectories of a body. Raises RequestError: 400 for no JSON, 422 with all problems for anything else."""
    try:
        raw = msgspec.json.decode(body, type=ScoreRequest).trajectories
    except msgspec.ValidationError as error:
        raise RequestError(422, f'{error}; allowed: {{"trajectories": [...]}}') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON ({error})") from None
    runs: list[Trajectory] = []
    problems: list[Problem] = []
    for position, line in enumerate(raw):
        run, findings = records.parse(bytes(line), Trajectory, trajectory.problems)
        problems += [records.problem(f"trajectories[{position}]", finding) for finding in findings]
        if run is not None:
            runs.append(run)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RequestError(422, f"{count} in the trajectories; nothing was scored", problems)
    return runs
