"""The ladder's rung and what each process sees, in Valkey: one hash, by the server's clock.

Whoever can write to Valkey can write sights. What is none is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.scripts import script
from tertulia.core.ladder import STEP_S, TOP, Foothold
from tertulia.core.load import TOLD_S, Sight, is_sound

_TELL: Final = script("ladder_tell")
_STEP: Final = script("ladder_step")

_KEY: Final = "tertulia:ladder"
# Every process tells again in two seconds: one that is late is followed by a newer one.
_BUDGET_S: Final = 0.5
# Nobody looks at a ladder for so long while there is work.
_KEPT_MS: Final = 3_600_000
# A sight has some hundred bytes; no fleet of ours has more gateways and workers.
_SIGHT_BYTES: Final = 8192
_MOST_SIGHTS: Final = 1000


class ValkeyRungs:
    """The `Rungs` port."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tell(self, name: str, sight: Sight) -> tuple[Foothold, Sequence[Sight]]:
        """Notes what a process sees; the foothold, and what all of them see."""
        text = json.dumps(asdict(sight), separators=(",", ":"))
        limits = (int(TOLD_S * 1000), _SIGHT_BYTES, _MOST_SIGHTS, _KEPT_MS)
        told = await self._client.run(_TELL, [_KEY], name, text, *limits, budget_s=_BUDGET_S)
        opened = [_opened(text) for text in told[3:]]
        return _foothold(told[:3]), [sight for sight in opened if sight is not None]

    async def step(self, seen: Foothold, to: int) -> Foothold:
        """Takes the step if it is still one."""
        words = (seen.rung, seen.changes, to, TOP, int(STEP_S * 1000))
        return _foothold(await self._client.run(_STEP, [_KEY], *words, budget_s=_BUDGET_S))


def _foothold(told: Sequence[Any]) -> Foothold:
    rung, held_ms, changes = told
    return Foothold(min(TOP, max(0, rung)), held_ms / 1000, changes)


def _opened(text: bytes) -> Sight | None:
    """A sight, also of a process of another version, which may tell more than we know."""
    try:
        sight = _TYPES.validate_json(text, strict=True)
    except ValidationError:
        return None
    return sight if is_sound(sight) else None


_TYPES: Final = TypeAdapter(Sight)
