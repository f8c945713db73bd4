"""Runs and training rows as records of a Parquet file, and runs back from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from scout.errors import ConfigError
from scout.lines import replacing
from scout.trajectory import Labels, Outcome, Step, Task, Trajectory

BATCH_ROWS = 256
BATCH_BYTES = 32_000_000
"""Text of a row group at most, but for a single longer run: a viewer loads one at a time, and so does the writer."""

_PLACES = ("source_file", "label_source")
"""Members of `meta` that hold a path; the folders of the machine are nobody's business."""

Record = dict[str, Any]


def run_record(run: Trajectory) -> Record:
    """The run as columns; `meta` as JSON text."""
    labels = run.labels
    meta = {name: _file(value) if name in _PLACES else value for name, value in run.meta.items()}
    return {
        "id": run.id,
        "source": source_of_run(run),
        "domain": _text(run.meta.get("domain")),
        "task_id": run.task.id,
        "task": run.task.text,
        "steps": [msgspec.structs.asdict(step) for step in run.steps],
        "passed": run.outcome.passed,
        "score": run.outcome.score,
        "has_mistake": run.has_mistake,
        "first_mistake": labels.first_mistake if labels else None,
        "step_labels": list(labels.step_labels) if labels else None,
        "labels_known": labels.known if labels else None,
        "labels_origin": labels.origin if labels else None,
        "reasons": list(labels.reasons) if labels else None,
        "annotators": list(labels.annotators) if labels else None,
        "kinds": list(labels.kinds) if labels else None,
        "proof_sizes": list(labels.proof_sizes) if labels else None,
        "meta": msgspec.json.encode(meta).decode(),
        "schema_version": run.schema_version,
    }


def run_of(record: Mapping[str, Any]) -> Trajectory:
    """The run that a record was made of; its paths are file names now. Takes a row of `datasets` as it is."""
    labels = None
    if record["step_labels"] is not None:
        labels = Labels(
            step_labels=tuple(record["step_labels"]),
            first_mistake=record["first_mistake"],
            known=record["labels_known"],
            origin=record["labels_origin"],
            **{name: tuple(record[name]) for name in ("reasons", "annotators", "kinds", "proof_sizes")},
        )
    return Trajectory(
        id=record["id"],
        task=Task(record["task"], record["task_id"]),
        steps=tuple(Step(**step) for step in record["steps"]),
        outcome=Outcome(record["passed"], record["score"]),
        labels=labels,
        meta=msgspec.json.decode(record["meta"]),
        schema_version=record["schema_version"],
    )


def source_of_run(run: Trajectory) -> str:
    """Where the run is from, as `data_prep.split` noted it; else its domain or format."""
    return next((str(run.meta[name]) for name in ("source", "domain", "format") if run.meta.get(name)), "unknown")


def _file(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) else value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


_ROW_COLUMNS = ("id", "trajectory_id", "task_id", "split", "prompt", "completion", "indices", "gold", "prompt_style",
                "prompt_version", "cut")  # fmt: skip


def row_record(row: Mapping[str, Any]) -> Record:
    """A training row with the columns that training reads; whatever else it holds goes into `extra` as JSON text."""
    extra = {name: value for name, value in row.items() if name not in _ROW_COLUMNS}
    known = {name: row.get(name) for name in _ROW_COLUMNS}
    return {**known, "extra": msgspec.json.encode(extra).decode() if extra else None}


def schemas() -> dict[str, Any]:
    """Name of a configuration -> its Arrow schema. Raises ConfigError without pyarrow."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigError("Writing Parquet needs the package pyarrow. Install the extra `train`.") from error
    text, number, texts = pa.string(), pa.int64(), pa.list_(pa.string())
    step = pa.struct(
        [("index", number), *((name, text) for name in ("thought", "action", "observation", "source_ref"))]
    )
    runs = [
        ("id", text), ("source", text), ("domain", text), ("task_id", text), ("task", text), ("steps", pa.list_(step)),
        ("passed", pa.bool_()), ("score", pa.float64()), ("has_mistake", pa.bool_()), ("first_mistake", number),
        ("step_labels", texts), ("labels_known", text), ("labels_origin", text), ("reasons", texts),
        ("annotators", texts), ("kinds", texts), ("proof_sizes", pa.list_(number)), ("meta", text),
        ("schema_version", number),
    ]  # fmt: skip
    rows = [
        ("id", text), ("trajectory_id", text), ("task_id", text), ("split", text),
        ("prompt", pa.list_(pa.struct([("role", text), ("content", text)]))), ("completion", text),
        ("indices", pa.list_(number)), ("gold", texts), ("prompt_style", text), ("prompt_version", text),
        ("cut", texts), ("extra", text),
    ]  # fmt: skip
    return {"runs": pa.schema(runs), "rows": pa.schema(rows)}


def write_parquet(path: Path, records: Iterable[Record], schema: Any) -> int:
    """Write the records a batch at a time and return their number; without records there is no file."""
    import pyarrow as pa
    from pyarrow import parquet

    batches = _batches(records)
    first = next(batches, None)
    if first is None:
        return 0
    count = 0
    with replacing(path) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in chain([first], batches):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
            count += len(batch)
    return count


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += _size(record)
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(value: Any) -> int:
    """Characters of all text in a record."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list) else 0
