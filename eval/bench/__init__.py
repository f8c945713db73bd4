"""Benchmarks against the plain way of doing the same, run from a checkout: `python -m eval.bench`."""
