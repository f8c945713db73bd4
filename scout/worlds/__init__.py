"""Simulated worlds whose hidden rules an agent has to find."""
