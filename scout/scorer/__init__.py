"""Trajectories in, verdicts out: one loop over windows, several engines behind it."""
