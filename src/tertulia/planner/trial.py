"""A plan as a scenario: its fleet, asked so many times its peak for a while, for the simulator.

A large fleet is tried as a part of it, and a small one for longer: shares of some ten thousand
messages vary little, and that many are played in seconds. It must never play anything itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tertulia.planner.plan import Plan
from tertulia.planner.sheet import POOLS

# So many messages are played, about, within these times.
_MESSAGES: Final = 30_000
_SHORTEST_S: Final = 300.0
_LONGEST_S: Final = 7_200.0
# More accelerators, or messages in a second, only take longer: a part of the fleet says the same.
_MOST_ACCELERATORS: Final = 100
_MOST_PER_S: Final = 150.0
# Until the line and the ladder are as they stay; it is not counted.
_WARM_SHARE: Final = 0.25
# As uneven as people's answers are (of the logarithm of their length).
_ANSWER_SPREAD: Final = 0.8
# No plan's limit shortens an answer here: what is tried is the fleet.
_LONGEST_TIMES: Final = 50


@dataclass(frozen=True, slots=True)
class Policies:
    """Which of the service's policies are on while a plan is tried."""

    ladder: bool = True
    paid_first: bool = True
    door: bool = True


def scenario_of(plan: Plan, *, load: float, policies: Policies) -> dict[str, Any]:
    """The scenario's tables. `load` is in times of the plan's peak."""
    asked_per_s = load * plan.value("peak_turns_per_s")
    whole = plan.value("accelerators")
    share = min(1.0, _MOST_ACCELERATORS / whole, _MOST_PER_S / asked_per_s)
    accelerators = max(1, round(whole * share))
    per_s = asked_per_s * accelerators / whole
    seconds = min(_LONGEST_S, max(_SHORTEST_S, _MESSAGES / per_s))
    prompt, cached, answer = _tokens(plan)
    limits = {
        "answer_tokens": _LONGEST_TIMES * answer,
        "window_tokens": prompt + 2 * _LONGEST_TIMES * answer,
    }
    return {
        "title": "A plan under load",
        "seconds": seconds,
        "warm_s": seconds * _WARM_SHARE,
        "fleet": {
            "accelerators": accelerators,
            **{pool: _costs(plan, pool, new=prompt - cached, answer=answer) for pool in POOLS},
        },
        "traffic": {"per_s": per_s},
        "people": {
            "free_share": plan.value("free_share"),
            "easy_share": plan.value("small_share"),
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "answer_tokens": answer,
            "answer_spread": _ANSWER_SPREAD,
        },
        "policy": {
            "ladder": "live" if policies.ladder else "off",
            "paid_first": policies.paid_first,
            "door": policies.door,
        },
        "plans": {"free": limits, "plus": limits},
    }


def _tokens(plan: Plan) -> tuple[int, int, int]:
    """Of a prompt, of it in the cache, and of an answer: whole ones, and something is new."""
    prompt = max(2, round(plan.value("prompt_tokens")))
    cached = min(prompt - 1, round(plan.value("cached_tokens")))
    return prompt, cached, max(1, round(plan.value("answer_tokens")))


def _costs(plan: Plan, pool: str, *, new: int, answer: int) -> dict[str, float]:
    """What a token costs an accelerator, so that a typical message costs what the plan says."""
    return {
        "read_s": plan.value(f"{pool}.prefill_accelerator_s") / new,
        "write_s": plan.value(f"{pool}.decode_accelerator_s") / answer,
    }
