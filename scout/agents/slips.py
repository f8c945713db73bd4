"""The eight ways in which the scripted scientist errs, after the failure labels of UltraHorizon.

Each is a function of the scientist and the sound plan that returns a faulty plan, or None where the moment does not
allow this kind of error. Whether the step really is a mistake is decided by the observer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from scout.worlds.mystery_grid import DIRECTIONS, inside
from scout.worlds.observer import ALL_EFFECTS, Claim

if TYPE_CHECKING:
    from scout.agents.scientist import Plan, Scientist

PLAIN_AIMS = ("test", "go", "look")
MOST_FALSE_BELIEFS = 2
TRIES = 40
"""Draws of a false belief before another kind of error is tried."""


def _believe(agent: Scientist, plan: Plan, fits: Callable[[str, frozenset[int]], bool]) -> Plan | None:
    """The plan with a false claim that becomes a belief, of the sort that `fits(letter, effects)` describes.

    The false belief is what the evidence leaves for another letter now, or left for this one earlier: so the belief
    alone never shows that it is false.
    """
    if plan.aim not in PLAIN_AIMS or len(agent.false) >= MOST_FALSE_BELIEFS:
        return None
    observer = agent.observer
    letters = [letter for letter in agent.letters if letter not in agent.false]
    for _ in range(TRIES):
        letter = agent.topic(letters)
        others = [other for other in agent.letters if other != letter]
        # False beliefs last while sound ones shrink, so the narrower of two is taken.
        effects = min((observer.left(agent.topic(others)) for _ in range(2)), key=len)
        if letter in observer.visits and agent.rng.random() < 0.1:
            effects = observer.left_before(letter, agent.rng.randrange(len(observer.visits[letter])))
        if effects == ALL_EFFECTS and agent.rng.random() < 0.8:
            continue
        if effects != observer.left(letter) and fits(letter, effects):
            agent.false[letter] = effects
            return agent.plan([Claim(letter, effects)])
    return None


def premature_convergence(agent: Scientist, plan: Plan) -> Plan | None:
    """Settles on one effect while others are left."""
    return _believe(agent, plan, lambda letter, effects: len(effects) == 1 and effects < agent.observer.left(letter))


def uncontrolled_experiment(agent: Scientist, plan: Plan) -> Plan | None:
    """Rules effects out although no visit has told them from the others."""
    return _believe(agent, plan, lambda letter, effects: len(effects) > 1 and effects < agent.observer.left(letter))


def environment_mis_modelling(agent: Scientist, plan: Plan) -> Plan | None:
    """Believes in effects that the visits have refuted."""
    return _believe(agent, plan, lambda letter, effects: not effects & agent.observer.left(letter))


def memory_issue(agent: Scientist, plan: Plan) -> Plan | None:
    """Keeps an effect that a visit has ruled out, beside one that is left or that fits another visit."""

    def half_remembered(letter: str, effects: frozenset[int]) -> bool:
        refuted = effects - agent.observer.left(letter)
        fitting = {effect for visit in agent.observer.visits.get(letter, ()) for effect in visit.fits()}
        return bool(refuted) and bool(effects & fitting)

    return _believe(agent, plan, half_remembered)


def repetitive_looping(agent: Scientist, plan: Plan) -> Plan | None:
    """Tests a letter whose outcome is known."""
    return _useless_test(agent, plan, own_letter=True)


def incoherent_planning(agent: Scientist, plan: Plan) -> Plan | None:
    """Means to test an open letter and steps on another."""
    return _useless_test(agent, plan, own_letter=False)


def _useless_test(agent: Scientist, plan: Plan, *, own_letter: bool) -> Plan | None:
    if plan.aim not in ("test", "go"):
        return None
    dull = [move for move in agent.explorer.moves(agent.world, agent.observer.left) if not move.informative]
    dull = [move for move in dull if move.letter in agent.letters]
    if not dull:
        return None
    move = agent.rng.choice(dull)
    plan.arguments = {"direction": move.direction}
    plan.target = move.letter
    if not own_letter:
        others = [letter for letter in agent.letters if letter != move.letter and len(agent.observer.left(letter)) > 1]
        if not others:
            return None
        plan.target = agent.rng.choice(others)
    plan.aim = "test"
    return plan


def misaligned_tool_usage(agent: Scientist, plan: Plan) -> Plan | None:
    """A call that the world refuses."""
    if plan.aim not in ("test", "go"):
        return None
    x, y = agent.world.position
    walls = [name for name, (dx, dy) in DIRECTIONS.items() if not inside(x + dx, y + dy)]
    plan.arguments = {"direction": agent.rng.choice(walls or ["north", "forward", "east"])}
    return plan


KINDS: Mapping[str, tuple[Callable[[Scientist, Plan], Plan | None], float]] = {
    "premature convergence": (premature_convergence, 2.0),
    "environment mis-modelling": (environment_mis_modelling, 1.0),
    "memory issues": (memory_issue, 0.4),
    "uncontrolled experiments": (uncontrolled_experiment, 1.6),
    "repetitive looping": (repetitive_looping, 0.08),
    "incoherent planning": (incoherent_planning, 0.04),
    "misaligned tool usage": (misaligned_tool_usage, 0.03),
}
"""Kind -> (behaviour, weight). The eighth, error propagation, is acting on a false belief that one of these left."""


def slip(agent: Scientist, plan: Plan) -> Plan | None:
    """The plan spoilt in a randomly drawn way, or None when the moment does not allow that one."""
    if not agent.observer.visits:
        return None
    chosen = agent.rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    believed = set(agent.false)
    spoilt = KINDS[chosen][0](agent, replace(plan, claims=list(plan.claims), arguments=dict(plan.arguments)))
    agent.unsaid |= {letter: chosen for letter in agent.false if letter not in believed}
    return replace(spoilt, kind=chosen) if spoilt else None
