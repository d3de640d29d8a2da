"""Cancels requests at random moments, as many as asked, and looks whether anything is left behind.

`python -m tests.replica.cancels --cancels 100000 --seed 1`. It runs the real engine, scheduler and
cache over a model without arithmetic; the suite runs a few thousand.
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass

from tertulia.core.blocks import Owner
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.model import Choice
from tests.replica.fake_model import FakeModel, engine_over

GREEDY = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
MOST_AT_ONCE = 12


@dataclass
class Found:
    """Where the cancelled requests were."""

    queued: int = 0
    reading: int = 0
    decoding: int = 0


def cancel_at_random(n_cancels: int, seed: int) -> Found:
    """Asserts after every step that blocks and cells add up, and at the end that all are back."""
    dice = random.Random(seed)
    model = FakeModel(lambda tokens: 97 + len(tokens) % 26, n_cache=160, window_tokens=120)
    ended: set[int] = set()

    def heard(emissions: list[Emission]) -> None:
        ended.update(one.key for one in emissions if one.finish is not None)

    engine = engine_over(model, heard, n_slots=4, n_idle=10, n_host=10, n_disk=10)
    found = Found()
    open_: dict[int, Generation] = {}
    n_done = 0
    while n_done < n_cancels:
        if len(open_) < MOST_AT_ONCE:
            prompt = tuple(dice.randrange(3) for _ in range(dice.randint(1, 70)))
            owner = Owner(dice.choice("ab"), dice.choice([0, 8]), dice.choice("xy"))
            asked = Generation(
                "r", prompt, dice.randint(1, 40), GREEDY, priority=dice.randint(0, 2), owner=owner
            )
            open_[engine.submit(asked)] = asked
        for key in [key for key in open_ if key in ended]:
            del open_[key]
        while open_ and dice.random() < 0.6:
            key = dice.choice(list(open_))
            asked = open_.pop(key)
            request = engine._requests.get(key)
            if request is None or key in engine._scheduler.waiting:
                found.queued += 1
            elif request.sequence.n_left > 1:
                found.reading += 1
            else:
                found.decoding += 1
            engine.abort(_only(asked), lambda _n_left: None)
            n_done += 1
        engine.step()
        ended.clear() if not open_ else ended.intersection_update(open_)
        counts = engine.counts()
        assert model.n_used <= 4 * (counts.n_blocks - counts.n_blocks_free)
    for asked in open_.values():
        engine.abort(_only(asked), lambda _n_left: None)
    for salt in "ab":
        engine.forget(salt, None, lambda _forgotten: None)
    while engine.step():
        pass
    counts = engine.counts()
    assert (counts.n_running, counts.n_waiting) == (0, 0)
    # The shared beginnings are nobody's and stay; everything else is back.
    assert counts.n_blocks_free + counts.n_blocks_idle == counts.n_blocks
    assert model.n_used == 4 * counts.n_blocks_idle
    assert not engine._cells._running
    assert len(engine._cells._free) + len(engine._cells._anchors) == model.limits.n_sequences
    return found


def _only(asked: Generation) -> Callable[[Generation], bool]:
    return lambda one: one is asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cancels", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = cancel_at_random(options.cancels, options.seed)
    print(
        f"{options.cancels} cancels: {found.queued} queued, {found.reading} reading their prompt, "
        f"{found.decoding} decoding; nothing is left"
    )


if __name__ == "__main__":
    main()
