"""Which blocks of the cache are kept when a reply has ended, for whom, and where they move to.

It must never find one owner's block for another owner, nor lose count of a block.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from tertulia.core.blocks import Move, Owner

SESSIONS_KNOWN = 64  # a block used by more conversations is forgotten with any of them


@dataclass(frozen=True)
class CacheLimits:
    """How many blocks there are, and how many may be kept where for later."""

    n_blocks: int
    block_tokens: int = 16
    n_idle: int = 2**31  # of `n_blocks`; fewer where unused blocks make every step slower
    n_host: int = 0
    n_disk: int = 0


@dataclass
class _Label:
    """Who may cause a named block to be forgotten; `sessions` none: more than we keep count of."""

    salt: str | None
    is_shared: bool
    sessions: set[str | None] | None = field(default_factory=set)


@dataclass(frozen=True)
class Forgotten:
    """How many blocks a deletion reached in each tier."""

    n_device: int = 0
    n_host: int = 0
    n_disk: int = 0


class PrefixCache:
    """Every block is free, held by running sequences, or idle: kept for whoever comes back.

    Invariants: free, held and idle blocks are all blocks. In each tier a block was used no earlier
    than those that follow it, so the least recently used one is always a leaf. A name is in one
    tier only. What has been decided is waiting in `moves` to be done.
    """

    def __init__(self, limits: CacheLimits) -> None:
        self.limits = limits
        self._free = list(range(limits.n_blocks))
        self._users = [0] * limits.n_blocks
        self._names: dict[int, bytes] = {}
        self._by_name: dict[bytes, int] = {}
        self._labels: dict[bytes, _Label] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # these three: longest unused first
        self._host: OrderedDict[bytes, None] = OrderedDict()
        self._disk: OrderedDict[bytes, None] = OrderedDict()
        self._moves: list[Move] = []

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_idle(self) -> int:
        return len(self._idle)

    @property
    def n_available(self) -> int:
        """Blocks that a sequence can have: the free ones, and the idle ones in their place."""
        return len(self._free) + len(self._idle)

    @property
    def n_host(self) -> int:
        return len(self._host)

    @property
    def n_disk(self) -> int:
        return len(self._disk)

    def moves(self) -> tuple[Move, ...]:
        """What has been decided since the last call."""
        decided, self._moves = tuple(self._moves), []
        return decided

    def n_held(self, names: Seq[bytes]) -> int:
        """How many of the first of these blocks are held already: to hold them costs no room."""
        for number, name in enumerate(names):
            block = self._by_name.get(name)
            if block is None or not self._users[block]:
                return number
        return len(names)

    def n_alone(self, table: Seq[int]) -> int:
        """How many of these blocks nobody else holds."""
        return sum(1 for block in table if self._users[block] == 1)

    def hold(self, name: bytes, owner: Owner, key: int, number: int) -> int | None:
        """The block of that name as `number` of sequence `key`; none if it must be computed.

        One from a lower tier takes the place of one that is free or idle.
        """
        block = self._by_name.get(name)
        if block is None:
            block = self._load(name, key, number)
        else:
            self._moves.append(Move("share", block, key=key, number=number))
        if block is not None:
            self._users[block] += 1
            self._idle.pop(block, None)
            _add(self._labels[name], owner)
        return block

    def take(self) -> int:
        """A block to be filled. The caller has made sure that one is available."""
        if not self._free:
            self._evict()
        block = self._free.pop()
        self._users[block] = 1
        return block

    def publish(self, block: int, name: bytes, owner: Owner, number: int) -> None:
        """The block is full: from now on others who may know its content find it."""
        if name in self._by_name:
            return  # two computed the same at the same time; this one goes with its sequence
        if _take_out(self._host, name) or _take_out(self._disk, name):
            self._moves.append(Move("discard", name=name))
        is_shared = owner.shares(number, self.limits.block_tokens)
        label = self._labels.setdefault(name, _Label(owner.salt, is_shared))
        _add(label, owner)
        self._names[block] = name
        self._by_name[name] = block

    def let_go(self, table: Seq[int]) -> None:
        """A sequence leaves its blocks; those that have a name stay, the last one is the oldest."""
        for block in reversed(table):
            self._users[block] -= 1
            if self._users[block]:
                continue
            if block in self._names:
                self._idle[block] = None
            else:
                self._drop(block)

    def trim(self, n_most: int) -> None:
        """Moves at most `n_most` idle blocks down that are more than should stay."""
        for _ in range(min(n_most, len(self._idle) - self.limits.n_idle)):
            self._evict()

    def evict(self) -> bool:
        """Moves the longest unused block down; false when none is idle."""
        if self._idle:
            self._evict()
            return True
        return False

    def forget(self, salt: str | None, session: str | None = None) -> Forgotten:
        """Drops an owner's blocks in every tier, or those that only one conversation has used."""
        n_device = n_host = n_disk = 0
        for name in [n for n, label in self._labels.items() if _goes(label, salt, session)]:
            del self._labels[name]
            block = self._by_name.pop(name, None)
            if block is not None:
                n_device += 1
                del self._names[block]  # whoever holds it keeps it to the end, nobody finds it
                if block in self._idle:
                    del self._idle[block]
                    self._drop(block)
                continue
            n_host += _take_out(self._host, name)
            n_disk += _take_out(self._disk, name)
            self._moves.append(Move("discard", name=name))
        return Forgotten(n_device, n_host, n_disk)

    def _drop(self, block: int) -> None:
        self._free.append(block)
        self._moves.append(Move("drop", block))

    def _load(self, name: bytes, key: int, number: int) -> int | None:
        if not self.n_available:
            return None
        # Out of its tier first: making room may push others out of it, never this one.
        if not (_take_out(self._host, name) or _take_out(self._disk, name)):
            return None
        block = self.take()
        self._users[block] = 0
        self._names[block] = name
        self._by_name[name] = block
        self._moves.append(Move("load", block, name, key, number))
        return block

    def _evict(self) -> None:
        block, _ = self._idle.popitem(last=False)
        name = self._names.pop(block)
        del self._by_name[name]
        if self.limits.n_host:
            self._moves.append(Move("save", block, name))
            self._keep_below(name)
        else:
            del self._labels[name]
        self._drop(block)

    def _keep_below(self, name: bytes) -> None:
        self._host[name] = None
        if len(self._host) <= self.limits.n_host:
            return
        oldest = lost = self._host.popitem(last=False)[0]
        if self.limits.n_disk:
            self._disk[oldest] = None
            lost = (
                self._disk.popitem(last=False)[0] if len(self._disk) > self.limits.n_disk else b""
            )
        if lost:
            del self._labels[lost]
            self._moves.append(Move("discard", name=lost))
        if lost != oldest:
            self._moves.append(Move("sink", name=oldest))


def _take_out(tier: OrderedDict[bytes, None], name: bytes) -> bool:
    if name not in tier:
        return False
    del tier[name]
    return True


def _add(label: _Label, owner: Owner) -> None:
    if label.is_shared or label.sessions is None:
        return
    label.sessions.add(owner.session)
    if len(label.sessions) > SESSIONS_KNOWN:
        label.sessions = None


def _goes(label: _Label, salt: str | None, session: str | None) -> bool:
    if label.is_shared or label.salt != salt:
        return False
    if session is None or label.sessions is None:
        return True
    label.sessions.discard(session)
    return not label.sessions
