"""Making training data from runs: collect, explain, check, split, stats. Run from a checkout, not installed."""
