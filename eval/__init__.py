"""Evaluation run from a checkout: `python -m eval.report`, `python -m eval.demo`, `python -m eval.bench`."""
