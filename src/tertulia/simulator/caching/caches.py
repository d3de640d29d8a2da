"""One replica's prefix cache in two grains: the service's own blocks, and whole conversations.

Both keep what running turns hold and drop what was longest unused. The second is quicker and has
no blocks to round down to; the first is the code that the embedded engine runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from tertulia.core.prefix import CacheLimits, PrefixCache
from tertulia.simulator.caching.turns import Text, Turn

BLOCK_TOKENS: Final = 64  # larger than an engine's 16, or most of a run would be spent on names


class Cache(Protocol):
    """Holds the prefixes of running turns and keeps those of others while there is room."""

    @property
    def held_share(self) -> float:
        """The part of it that running turns hold."""

    def known(self, text: Text, tokens: int) -> int:
        """How many of a prompt's first tokens it could serve now. Nothing changes."""

    def open(self, turn: Turn) -> int | None:
        """Takes room for prompt and reply; how many tokens were found, or None without room."""

    def close(self, turn: Turn) -> None:
        """The turn has ended: what it computed stays until its room is needed."""


class SpanCache:
    """A prefix per text, exact in tokens. What must go is cut off the end of the longest unused.

    Invariant: idle and held tokens together are at most the capacity.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        # Own tokens of each text that nobody uses now; after a cut the old one stays for a while.
        self._idle: OrderedDict[tuple[str | None, int], int] = OrderedDict()
        self._n_idle = 0
        self._n_held = 0
        self._has_shared = False

    @property
    def held_share(self) -> float:
        """The part of it that running turns hold."""
        return self._n_held / self._capacity

    def known(self, text: Text, tokens: int) -> int:
        """How many of a prompt's first tokens it could serve now."""
        if not self._has_shared:
            return 0
        found = text.owner.n_shared + self._idle.get(_key(text), 0)
        return min(found, tokens - 1)  # somebody has to compute what follows the last one

    def open(self, turn: Turn) -> int | None:
        """Takes room; how many tokens were found, or None without room."""
        shared = 0 if self._has_shared else turn.text.owner.n_shared
        own = _own_tokens(turn)
        if self._n_held + shared + own > self._capacity:
            return None
        found = self.known(turn.text, turn.prompt)
        self._has_shared = True  # and held from now on: somebody always needs it
        self._n_held += shared + own
        self._n_idle -= self._idle.pop(_key(turn.text), 0)
        self._make_room()
        return found

    def close(self, turn: Turn) -> None:
        """What it computed is idle from now on."""
        key, own = _key(turn.text), _own_tokens(turn)
        self._n_held -= own
        self._n_idle += own - self._idle.pop(key, 0)
        self._idle[key] = own

    def _make_room(self) -> None:
        beyond = self._n_held + self._n_idle - self._capacity
        while beyond > 0:
            key, own = next(iter(self._idle.items()))
            if own > beyond:
                self._idle[key] = own - beyond
                self._n_idle -= beyond
                return
            del self._idle[key]
            self._n_idle -= own
            beyond -= own


def _key(text: Text) -> tuple[str | None, int]:
    return text.owner.salt, text.version


def _own_tokens(turn: Turn) -> int:
    return turn.prompt + turn.reply - turn.text.owner.n_shared


class BlockCache:
    """The service's own prefix cache. Room for a whole reply is taken when it begins."""

    def __init__(
        self,
        capacity: int,
        *,
        block_tokens: int = BLOCK_TOKENS,
        keeps_replies: bool = True,
    ) -> None:
        self._block_tokens = block_tokens
        self._keeps_replies = keeps_replies
        limits = CacheLimits(capacity // block_tokens, block_tokens=block_tokens)
        self._cache = PrefixCache(limits)
        self._tables: dict[int, tuple[list[int], int]] = {}  # blocks, and how many were found
        self._named: dict[int, bytes] = {}  # what can be found, by block
        self._known: set[bytes] = set()

    @property
    def held_share(self) -> float:
        """The part of it that running turns hold."""
        return 1 - self._cache.n_available / self._cache.limits.n_blocks

    def known(self, text: Text, tokens: int) -> int:
        """How many of a prompt's first tokens it could serve now."""
        names = text.names((tokens - 1) // self._block_tokens, self._block_tokens)
        n_known = next((n for n, name in enumerate(names) if name not in self._known), len(names))
        return n_known * self._block_tokens

    def open(self, turn: Turn) -> int | None:
        """Takes room; how many tokens were found, or None without room."""
        names = turn.text.names((turn.prompt - 1) // self._block_tokens, self._block_tokens)
        table: list[int] = []
        for number, name in enumerate(names):
            block = self._cache.hold(name, turn.text.owner, turn.key, number)
            if block is None:
                break
            table.append(block)
        n_found = len(table)
        n_more = -(-(turn.prompt + turn.reply) // self._block_tokens) - n_found
        if n_more > self._cache.n_available:
            self._let_go(table)
            return None
        table += [self._cache.take() for _ in range(n_more)]
        self._tables[turn.key] = table, n_found
        self._note_moves()
        return n_found * self._block_tokens

    def close(self, turn: Turn) -> None:
        """Others find its full blocks from now on."""
        table, n_found = self._tables.pop(turn.key)
        tokens = turn.prompt + (turn.reply if self._keeps_replies else 0)
        names = turn.text.names(tokens // self._block_tokens, self._block_tokens)
        for number in range(n_found, len(names)):
            self._cache.publish(table[number], names[number], turn.text.owner, number)
            if names[number] not in self._known:
                self._known.add(names[number])
                self._named[table[number]] = names[number]
        self._let_go(table)

    def _let_go(self, table: list[int]) -> None:
        self._cache.let_go(table)
        self._note_moves()

    def _note_moves(self) -> None:
        for move in self._cache.moves():
            if move.kind == "drop" and move.block in self._named:
                self._known.remove(self._named.pop(move.block))


# "trace": in the blocks of a recorded trace, which does not say what replies consist of.
CACHES: Final[dict[str, Callable[[int], Cache]]] = {
    "spans": SpanCache,
    "blocks": BlockCache,
    "trace": lambda capacity: BlockCache(capacity, block_tokens=512, keeps_replies=False),
}
