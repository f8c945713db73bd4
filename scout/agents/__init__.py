"""Agents that play the worlds."""
