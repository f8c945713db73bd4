"""The model card of an exported verifier."""

from __future__ import annotations

from scout import trajectory
from scout.config import ScoutConfig
from scout.trajectory import Step, Task, Trajectory


def card(name: str, config: ScoutConfig) -> str:
    """README.md of a model folder, with a request that can be pasted."""
    run = Trajectory(
        "example",
        Task("Find the open door."),
        (
            Step(1, "I try the red door.", "open red", "It is locked."),
            Step(2, "The red door is open, I go through.", "go red", "Nothing happens."),
        ),
    )
    budget = f"{config.window_steps} steps" if config.window_steps else "the whole run"
    return f"""\
---
base_model: {config.base_model}
pipeline_tag: text-generation
tags: [scout, verifier, agent-trajectories]
---
# {name}

A Scout verifier: it reads the recorded run of an agent, judges each step, names the first mistake and gives `p_yes`,
the probability that the run holds none. It judges the agent's decisions on the evidence available at that step.

| | |
|---|---|
| base model | {config.base_model} |
| recipe | {config.recipe} |
| prompt version, style | {config.prompt_version}, {config.style} |
| fingerprint | {config.fingerprint} |
| one prompt shows | {budget}, at most {config.prompt_tokens} tokens |
| reply | at most {config.completion_tokens} tokens, {config.analyses} replies at temperature {config.temperature} |
| a step is incorrect from | p_incorrect {config.threshold} |
| runs of a task are put in order by | {config.selector} |

The licence of the base model applies to these weights. How good the verdicts are is measured by `make eval`; on runs
unlike those it was trained on, nothing is claimed.

## Use
```
scoutv serve {name} --host 127.0.0.1 --port 8000
curl -s http://127.0.0.1:8000/v1/score -H 'content-type: application/json' \\
  -d '{{"trajectories": [{trajectory.dumps(run)}]}}'
```
The answer is `{{"verdicts": [...]}}`, one for each run in the same order: `status` scored or unscored with a reason,
per step `label` and `p_incorrect`, `first_mistake`, `p_yes`, and in `cut` what was not seen.

Other prompts than Scout's give other numbers: load the folder with `scoutv score` or `scoutv serve`, which check the
fingerprint in `scout.json`.
"""
