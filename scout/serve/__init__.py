"""The HTTP endpoint: real vLLM behind, runs in, verdicts out."""
