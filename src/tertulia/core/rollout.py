"""Which version of the system prompt a conversation is on while one is rolled out.

The conversation's id and the rollout alone decide, so that every process says the same at any time;
a larger share only adds conversations to those that are on the new version already.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Final

# A share is of so many conversations.
ALL: Final = 100


@dataclass(frozen=True, slots=True)
class Rollout:
    """`share` of a hundred conversations are on `version`, the others on `base`.

    `configured` is the version that the configuration named when it was last followed.
    """

    base: str
    version: str
    share: int
    configured: str

    @property
    def is_under_way(self) -> bool:
        """Whether both versions are given to new conversations."""
        return 0 < self.share < ALL

    @property
    def settled(self) -> str:
        """The version of all; while it is under way, the one to go back to."""
        return self.version if self.share == ALL else self.base


@dataclass(frozen=True, slots=True)
class PromptUse:
    """A version of the system prompt, and how many conversations are on it, counted up to a bound.

    `created_at` is by the store's clock.
    """

    version: str
    text: str
    created_at: float
    conversations: int


def version_of(text: str) -> str:
    """The name of a system prompt: its own hash, so that equal text is one version."""
    return sha256(text.encode()).hexdigest()[:12]


def version_for(conversation_id: str, rollout: Rollout) -> str:
    """The version that a conversation of this id begins with."""
    is_chosen = _draw(conversation_id, rollout.version) < rollout.share
    return rollout.version if is_chosen else rollout.base


def prompt_version_at_cut(conversation_id: str, *, kept: str, rollout: Rollout | None) -> str:
    """The version of a conversation that kept to `kept` until its context was cut just now.

    There, and only there, an old conversation moves: the cut empties its cache in any case.
    """
    return kept if rollout is None else version_for(conversation_id, rollout)


def rolled_out(now: Rollout, version: str, *, share: int) -> Rollout | None:
    """The rollout that gives `version` to `share` of a hundred; None while another is under way.

    With three versions at once nobody could say any more which of them a figure is about.
    """
    assert 0 <= share <= ALL, share
    if version == now.version:
        return Rollout(now.base, version, share, now.configured)
    if now.is_under_way:
        return None
    return Rollout(now.settled, version, share, now.configured)


def followed(now: Rollout | None, configured: str) -> Rollout | None:
    """What follows from the version that the configuration names; None if nothing does.

    The first one is everybody's. After that one that was edited is given to all who begin from
    then on; but it never breaks into a rollout that is under way.
    """
    if now is None:
        return Rollout(configured, configured, ALL, configured)
    if now.configured == configured or now.is_under_way:
        return None
    return Rollout(now.settled, configured, ALL, configured)


def _draw(conversation_id: str, version: str) -> int:
    """A number from 0 to 99 that only these two decide, so that each version is tried on others.

    Well mixed: a bare FNV-1a of ids that follow one another would give a share of 10 anything
    from 5 to 20.
    """
    digest = blake2b(f"{version}\0{conversation_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) * ALL >> 64
