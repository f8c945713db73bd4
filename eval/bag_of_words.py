"""A classifier that reads one step's words and position, nothing else: it measures what wording gives away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from scout.errors import InputError
from scout.metrics import auroc
from scout.prompt import step_text
from scout.trajectory import Step, Trajectory

STRENGTHS = (0.03, 0.3, 3.0)
"""Inverse regularisation; the best on dev is taken, so that the baseline is as strong as it can be."""
TRAIN_STEPS = 40_000
"""More steps cost minutes on one core and moved the AUROC by less than its interval."""


class BagOfWords:
    """Logistic regression over token unigrams and bigrams of a step, and where in the run it stands."""

    def __init__(self, train: Sequence[Trajectory], dev: Sequence[Trajectory]) -> None:
        """Fit on the labelled steps of train; regularisation chosen by AUROC on dev. Raises InputError when either
        split lacks one of the two labels, which leaves nothing to fit or choose."""
        train_rows, train_gold = _labelled(train, TRAIN_STEPS)
        dev_rows, dev_gold = _labelled(dev, TRAIN_STEPS)
        for name, gold in (("train", train_gold), ("dev", dev_gold)):
            if len(set(gold)) < 2:
                raise InputError(f"bag of words: the {name} runs need correct and incorrect steps, found {set(gold)}.")
        self._vectorizer = CountVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), min_df=2)
        self._vectorizer.fit([step_text(step) for step, _ in train_rows])
        train_X, dev_X = self._features(train_rows), self._features(dev_rows)
        best = -1.0
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, solver="liblinear", max_iter=200).fit(train_X, train_gold)
            reached = auroc(model.predict_proba(dev_X)[:, 1], [bool(gold) for gold in dev_gold])
            if reached is not None and reached > best:
                best, self.strength, self._model = reached, strength, model

    def p_incorrect(self, run: Trajectory) -> tuple[float, ...]:
        """Probability that each step is incorrect, shape (S,), judged one by one."""
        rows = [(step, len(run.steps)) for step in run.steps]
        return tuple(float(p) for p in self._model.predict_proba(self._features(rows))[:, 1])

    def _features(self, rows: Sequence[tuple[Step, int]]) -> sparse.csr_matrix:
        words = self._vectorizer.transform([step_text(step) for step, _ in rows])
        places = [
            (step.index / 10, step.index / total, step.index == 1, step.index == total, total / 10)
            for step, total in rows
        ]
        return sparse.hstack([words, sparse.csr_matrix(numpy.array(places, dtype=float))]).tocsr()


def _labelled(runs: Sequence[Trajectory], limit: int) -> tuple[list[tuple[Step, int]], list[int]]:
    pairs = list(_pairs(runs))
    if len(pairs) > limit:
        # Every k-th step, so that all tasks and positions stay represented.
        pairs = [pairs[int(i * len(pairs) / limit)] for i in range(limit)]
    return [(step, total) for step, total, _ in pairs], [gold for _, _, gold in pairs]


def _pairs(runs: Sequence[Trajectory]) -> Iterator[tuple[Step, int, int]]:
    for run in runs:
        if run.labels is None:
            continue
        for step, label in zip(run.steps, run.labels.step_labels, strict=True):
            if label != "unlabelled":
                yield step, len(run.steps), int(label == "incorrect")
