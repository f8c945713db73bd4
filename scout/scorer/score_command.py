"""`scoutv score`: runs -> one verdict a line."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

from scout import verdict
from scout.errors import OK, UNSCORED
from scout.scorer import batch
from scout.verdict import Verdict


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    batch.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Writes verdicts in the order of the runs; UNSCORED when one or more has no score."""
    batch.check_out(args.out, args.files)
    total = batch.check_inputs(args.files)
    source = batch.open_source(args)
    statuses: Counter[str] = Counter()

    def counted() -> Iterator[Verdict]:
        for item in batch.judge(args.files, source, total, args.out):
            statuses[item.unscored_reason or ""] += 1
            yield item

    if args.out:
        verdict.write(args.out, counted())
        batch.finish(args.out)
    else:
        for item in counted():
            print(verdict.dumps(item), flush=True)
    batch.report(statuses)
    return UNSCORED if any(reason for reason in statuses) else OK
