"""What the cache keeps is found by its owner alone, is what it says it is, and is counted right.

A cache of plain lists does the moves that are decided; every found block is compared with it.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tertulia.core.blocks import Owner, block_name
from tertulia.core.prefix import SESSIONS_KNOWN, CacheLimits, Forgotten, PrefixCache

BLOCK = 2
Content = tuple[str | None, tuple[int, ...]]  # whose it is, and all tokens up to its end


def fill(cache: PrefixCache, tokens: list[int], owner: Owner) -> list[int]:
    """Runs a sequence of whole blocks to its end, without letting go; gives its table."""
    table: list[int] = []
    name = b""
    for number in range(len(tokens) // BLOCK):
        name = block_name(name, tokens[number * BLOCK : (number + 1) * BLOCK], owner, number)
        block = cache.hold(name, owner, 0, number)
        if block is None:
            block = cache.take()
            cache.publish(block, name, owner, number)
        table.append(block)
    return table


def found(cache: PrefixCache, tokens: list[int], owner: Owner) -> int:
    """How many blocks a newcomer would not have to compute."""
    table: list[int] = []
    name = b""
    for number in range(len(tokens) // BLOCK):
        name = block_name(name, tokens[number * BLOCK : (number + 1) * BLOCK], owner, number)
        block = cache.hold(name, owner, 0, number)
        if block is None:
            break
        table.append(block)
    cache.let_go(table)
    return len(table)


def cache_of(n_blocks: int = 20, **limits: int) -> PrefixCache:
    return PrefixCache(CacheLimits(n_blocks, BLOCK, **limits))


ADA, BOB = Owner("ada"), Owner("bob")


def test_equal_text_under_two_owners_has_two_names() -> None:
    assert block_name(b"", [1, 2], ADA, 0) != block_name(b"", [1, 2], BOB, 0)
    assert block_name(b"", [1, 2], ADA, 0) != block_name(b"", [1, 2], Owner(None), 0)
    assert block_name(b"", [1, 2], Owner(""), 0) != block_name(b"", [1, 2], Owner(None), 0)


def test_a_salt_that_looks_like_a_name_does_not_lead_into_another_owners_text() -> None:
    before = b"\2" + b"x" * 31
    owned = block_name(before, [1, 2], Owner("ada"), 1)
    assert block_name(b"", [1, 2], Owner("x" * 31 + "\2ada"), 0) != owned


def test_what_somebody_without_a_salt_wrote_is_not_taken_for_the_shared_beginning() -> None:
    assert block_name(b"", [1, 2], Owner(), 0) != block_name(b"", [1, 2], Owner(n_shared=2), 0)


def test_the_shared_beginning_has_one_name_and_what_follows_is_the_owners() -> None:
    one, other = Owner("ada", n_shared=3), Owner("bob", n_shared=3)
    first = block_name(b"", [1, 2], one, 0)
    assert first == block_name(b"", [1, 2], other, 0)
    # The second block holds the fourth token, which is somebody's.
    assert block_name(first, [3, 4], one, 1) != block_name(first, [3, 4], other, 1)


def test_a_name_tells_everything_before_it() -> None:
    one = block_name(b"", [1, 2], ADA, 0)
    other = block_name(b"", [9, 9], ADA, 0)
    assert block_name(one, [3, 4], ADA, 1) != block_name(other, [3, 4], ADA, 1)


def test_the_longest_unused_leaf_is_evicted_first_and_never_a_held_block() -> None:
    cache = cache_of(6)
    long = fill(cache, [1, 2, 3, 4, 5, 6], ADA)
    cache.let_go(long)
    held = fill(cache, [1, 2], ADA)
    fill(cache, [7, 7, 8, 8, 9, 9], BOB)  # three blocks are free
    assert cache.n_available == 2
    assert cache.evict()
    assert found(cache, [1, 2, 3, 4, 5, 6], ADA) == 2
    assert cache.evict()
    assert not cache.evict()
    assert found(cache, [1, 2, 3, 4], ADA) == 1
    assert held == long[:1]


def test_what_is_used_by_two_conversations_stays_when_one_is_forgotten() -> None:
    cache = cache_of()
    for session, end in (("one", 3), ("two", 5)):
        cache.let_go(fill(cache, [1, 2, end, end], Owner("ada", session=session)))
    assert cache.forget("ada", "one") == Forgotten(n_device=1)
    assert found(cache, [1, 2, 3, 3], Owner("ada")) == 1
    assert found(cache, [1, 2, 5, 5], Owner("ada")) == 2


def test_a_block_of_more_conversations_than_are_counted_goes_with_any_of_them() -> None:
    cache = cache_of()
    for number in range(SESSIONS_KNOWN + 1):
        cache.let_go(fill(cache, [1, 2], Owner("ada", session=f"{number}")))
    cache.let_go(fill(cache, [1, 2], Owner("ada", session="one more")))
    assert cache.forget("bob", "7") == Forgotten()
    assert cache.forget("ada", "7") == Forgotten(n_device=1)


def test_the_shared_beginning_outlives_its_first_user() -> None:
    cache = cache_of()
    cache.let_go(fill(cache, [1, 2, 3, 4], Owner("ada", n_shared=2)))
    assert cache.forget("ada") == Forgotten(n_device=1)
    assert found(cache, [1, 2, 3, 4], Owner("bob", n_shared=2)) == 1


def test_forgetting_reaches_memory_and_disk() -> None:
    cache = cache_of(20, n_idle=1, n_host=1, n_disk=5)
    cache.let_go(fill(cache, [1, 2, 3, 4, 5, 6, 7, 8], ADA))
    cache.trim(100)
    assert (cache.n_idle, cache.n_host, cache.n_disk) == (1, 1, 2)
    assert cache.forget("ada") == Forgotten(1, 1, 2)
    assert (cache.n_free, cache.n_host, cache.n_disk) == (20, 0, 0)


def test_a_held_block_that_was_forgotten_is_found_by_nobody_and_free_at_the_end() -> None:
    cache = cache_of()
    table = fill(cache, [1, 2], ADA)
    cache.forget("ada")
    assert found(cache, [1, 2], ADA) == 0
    cache.let_go(table)
    assert cache.n_free == 20


def test_two_who_computed_the_same_keep_one() -> None:
    cache = cache_of()
    name = block_name(b"", [1, 2], ADA, 0)
    one, other = cache.take(), cache.take()
    cache.publish(one, name, ADA, 0)
    cache.publish(other, name, ADA, 0)
    cache.let_go([one])
    cache.let_go([other])
    assert (cache.n_idle, cache.n_free) == (1, 19)


@pytest.mark.parametrize("n_disk", [0, 1])
def test_what_is_computed_again_is_not_kept_below_as_well(n_disk: int) -> None:
    cache = cache_of(20, n_idle=0, n_host=1, n_disk=n_disk)
    cache.let_go(fill(cache, [1, 2, 3, 4], ADA))
    cache.trim(100)
    assert (cache.n_host, cache.n_disk) == (1, n_disk)
    for number, name in enumerate((b"", block_name(b"", [1, 2], ADA, 0))):
        named = block_name(name, [1, 2] if number == 0 else [3, 4], ADA, number)
        cache.publish(cache.take(), named, ADA, number)
    assert (cache.n_host, cache.n_disk) == (0, 0)


def test_nothing_is_brought_back_where_there_is_no_room() -> None:
    cache = cache_of(2, n_host=9)
    cache.let_go(fill(cache, [1, 2], ADA))
    fill(cache, [5, 6, 7, 8], BOB)
    assert cache.n_host == 1
    assert found(cache, [1, 2], ADA) == 0
    assert cache.n_host == 1


class Lives(RuleBasedStateMachine):
    """Sequences of few different tokens come and go; a plain copy of the cache does the moves."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache_of(9, n_idle=4, n_host=4, n_disk=3)
        self.tables: dict[int, list[int]] = {}
        self.contents: dict[int, Content] = {}  # by block
        self.below: dict[bytes, Content] = {}
        self.key = 0

    def do_moves(self) -> None:
        for move in self.cache.moves():
            if move.kind == "save":
                assert move.name not in self.below
                self.below[move.name] = self.contents[move.block]
            elif move.kind == "drop":
                self.contents.pop(move.block, None)
            elif move.kind == "load":
                assert move.block not in self.contents
                self.contents[move.block] = self.below.pop(move.name)
            elif move.kind == "discard":
                del self.below[move.name]

    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=2, max_size=8),
        salt=st.sampled_from(["ada", "bob", None]),
        session=st.sampled_from(["one", "two"]),
        n_shared=st.sampled_from([0, 4]),
    )
    def run(self, tokens: list[int], salt: str | None, session: str, n_shared: int) -> None:
        owner = Owner(salt, n_shared, session)
        table: list[int] = []
        self.key += 1
        name = b""
        for number in range(len(tokens) // BLOCK):
            end = (number + 1) * BLOCK
            name = block_name(name, tokens[number * BLOCK : end], owner, number)
            block = self.cache.hold(name, owner, self.key, number)
            self.do_moves()
            whose = None if end <= n_shared else salt
            if block is not None:
                assert self.contents[block] == (whose, tuple(tokens[:end]))
            elif self.cache.n_available:
                block = self.cache.take()
                self.do_moves()
                assert block not in self.contents
                self.contents[block] = (whose, tuple(tokens[:end]))
                self.cache.publish(block, name, owner, number)
                self.do_moves()
            else:
                break
            table.append(block)
        self.tables[self.key] = table

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.tables)))
        self.cache.let_go(self.tables.pop(key))
        self.do_moves()

    @rule(n_most=st.integers(0, 3))
    def trim(self, n_most: int) -> None:
        before = self.cache.n_idle
        self.cache.trim(n_most)
        self.do_moves()
        assert self.cache.n_idle == max(min(before, 4), before - n_most)

    @rule(salt=st.sampled_from(["ada", "bob", None]), session=st.sampled_from([None, "one"]))
    def forget(self, salt: str | None, session: str | None) -> None:
        kept = [*self.contents.values(), *self.below.values()]
        reached = self.cache.forget(salt, session)
        self.do_moves()
        assert reached.n_device + reached.n_host + reached.n_disk <= len(kept)
        held = {block for table in self.tables.values() for block in table}
        if session is None and salt is not None:
            idle = [content for block, content in self.contents.items() if block not in held]
            assert not [one for one in [*idle, *self.below.values()] if one[0] == salt]

    @invariant()
    def every_block_is_one_thing(self) -> None:
        cache = self.cache
        held = {block for table in self.tables.values() for block in table}
        assert sorted([*cache._free, *cache._idle, *held]) == list(range(9))
        assert held.isdisjoint(cache._idle)
        assert set(self.contents) == held | set(cache._idle)
        tiers = [*cache._by_name, *cache._host, *cache._disk]
        assert len(tiers) == len(set(tiers))
        assert set(tiers) == set(cache._labels)
        assert set(self.below) == {*cache._host, *cache._disk}
        assert cache.n_host <= 4
        assert cache.n_disk <= 3

    @invariant()
    def no_block_outlives_the_one_before_it(self) -> None:
        device = {content for block, content in self.contents.items() if block in self.cache._names}
        known = device | set(self.below.values())
        for _whose, tokens in known:
            if len(tokens) > BLOCK:
                assert any(tokens[:-BLOCK] == other for _, other in known)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
