"""Promises of the `Accounts`, `Sessions` and `ApiKeys` ports."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.core.types import ApiKey, Balance, Holding, Lane, OpenSession, Session, Spent, Usage
from tests.conformance.world import (
    DAY_MS,
    PLENTY,
    START,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    person,
    stateless,
)

pytestmark = pytest.mark.anyio

KEY = ApiKey("key_1", "u_ana", "laptop", "tt_ab", "hash-1", START)


async def test_a_name_is_taken_in_any_case(backend: Backend) -> None:
    ana = person("Ána")
    assert await backend.accounts.add(ana) == ana
    assert await backend.accounts.add(person("áNA", id="u_other")) is None
    assert await backend.accounts.by_name("ÁNA") == ana
    assert await backend.accounts.find("u_Ána") == ana
    assert await backend.accounts.count() == 1
    assert await backend.accounts.by_name("ben") is None
    assert await backend.accounts.find("u_ben") is None


async def test_racing_registrations_of_one_name_make_one_user(backend: Backend) -> None:
    added = await asyncio.gather(
        *(backend.accounts.add(person("ana", id=f"u_{n}")) for n in range(10))
    )
    assert sum(user is not None for user in added) == 1


async def test_a_change_of_a_user_touches_only_what_it_names(backend: Backend) -> None:
    ana = person("ana")
    await backend.accounts.add(ana)
    changed = await backend.accounts.change("u_ana", {"plan": "plus", "password_hash": None})
    assert changed == replace(ana, plan="plus", password_hash=None)
    assert await backend.accounts.find("u_ana") == changed
    assert await backend.accounts.change("u_ben", {"plan": "plus"}) is None
    with pytest.raises(ValueError, match="name"):
        await backend.accounts.change("u_ana", {"name": "ben"})


async def test_users_are_listed_by_their_ids_page_after_page(backend: Backend) -> None:
    assert (await backend.accounts.page(plan=None, after=None, limit=5)).items == ()
    users = [person(f"p{n}", plan="plus" if n % 3 else "free") for n in range(7)]
    for user in reversed(users):
        await backend.accounts.add(user)
    first = await backend.accounts.page(plan=None, after=None, limit=5)
    rest = await backend.accounts.page(plan=None, after=first.next_cursor, limit=5)
    assert (first.items, rest.items) == (tuple(users[:5]), tuple(users[5:]))
    assert (first.next_cursor, rest.next_cursor) == ("u_p4", None)
    exact = await backend.accounts.page(plan=None, after=None, limit=7)
    assert exact.next_cursor is None
    plus = await backend.accounts.page(plan="plus", after="u_p1", limit=2)
    assert (plus.items, plus.next_cursor) == ((users[2], users[4]), "u_p4")
    none = await backend.accounts.page(plan="gold", after=None, limit=2)
    assert (none.items, none.next_cursor) == ((), None)


async def test_what_is_spent_is_what_was_settled_and_what_is_open(
    backend: Backend, clock: ManualClock
) -> None:
    await answered(backend, stateless(1))
    await admitted(backend, stateless(2))
    clock.pass_(5)
    # In the moment after its admission: the ledger's time goes on, whatever the clock says.
    now_ms, settled_ms = int(1000 * START) + 5000, int(1000 * START) + 1
    assert await backend.accounts.spent("ana") == Spent(
        now_ms,
        {"tokens_day": Balance(150_000, settled_ms, PLENTY.budgets[0].limit, DAY_MS)},
        (Holding("m_r2", Lane.FREE, Usage(100, 0, 200), ("tokens_day",)),),
    )
    assert await backend.accounts.spent("ben") == Spent(now_ms, {}, ())


async def test_open_replies_are_named_oldest_first(backend: Backend, clock: ManualClock) -> None:
    for n in (3, 1, 2):
        await admitted(backend, stateless(n))
        clock.pass_(1)
    await claimed(backend)
    assert (await backend.accounts.spent("ana")).running == ("m_r3", "m_r1", "m_r2")


async def test_a_session_lasts_until_its_end(backend: Backend, clock: ManualClock) -> None:
    ana = person("ana")
    await backend.accounts.add(ana)
    await backend.sessions.open("u_ana", "s1", lasts_s=100)
    clock.pass_(99)
    found = await backend.sessions.find("s1")
    assert found == Session(ana, "s1", 99)
    clock.pass_(1)
    assert await backend.sessions.find("s1") is None
    assert await backend.sessions.find("unknown") is None


async def test_sessions_are_closed_one_by_one_or_all_of_a_user(backend: Backend) -> None:
    await backend.accounts.add(person("ana"))
    await backend.accounts.add(person("ben"))
    for name, token in (("ana", "s1"), ("ana", "s2"), ("ana", "s3"), ("ben", "s4")):
        await backend.sessions.open(f"u_{name}", token, lasts_s=100)
    assert await backend.sessions.close(token_hash="s1") == 1
    assert await backend.sessions.find("s1") is None
    assert await backend.sessions.close(token_hash="s4", user_id="u_ana") == 0
    assert await backend.sessions.close(user_id="u_ana") == 2
    assert await backend.sessions.find("s4") is not None
    assert await backend.sessions.close() == 0
    assert await backend.sessions.find("s4") is not None


async def test_a_link_works_once(backend: Backend) -> None:
    ana = person("ana")
    await backend.accounts.add(ana)
    await backend.sessions.add_link("u_ana", "l1", lasts_s=100)
    redeemed = await asyncio.gather(*(backend.sessions.redeem("l1") for _ in range(10)))
    assert [user for user in redeemed if user is not None] == [ana]


async def test_a_new_link_ends_the_users_earlier_ones(backend: Backend) -> None:
    await backend.accounts.add(person("ana"))
    await backend.accounts.add(person("ben"))
    await backend.sessions.add_link("u_ana", "l1", lasts_s=100)
    await backend.sessions.add_link("u_ben", "l2", lasts_s=100)
    await backend.sessions.add_link("u_ana", "l3", lasts_s=100)
    assert await backend.sessions.redeem("l1") is None
    assert await backend.sessions.redeem("l2") == person("ben")
    assert await backend.sessions.redeem("l3") == person("ana")


async def test_a_link_ends(backend: Backend, clock: ManualClock) -> None:
    await backend.accounts.add(person("ana"))
    await backend.sessions.add_link("u_ana", "l1", lasts_s=100)
    clock.pass_(100)
    assert await backend.sessions.redeem("l1") is None


async def test_a_key_is_found_by_its_hash_and_notes_its_use(
    backend: Backend, clock: ManualClock
) -> None:
    ana = person("ana", evaluation=True)
    await backend.accounts.add(ana)
    await backend.api_keys.add(KEY)
    clock.pass_(5)
    assert await backend.api_keys.by_secret("hash-1") == (ana, replace(KEY, last_used_at=START + 5))
    clock.pass_(59)  # within a minute it is not written again
    assert await backend.api_keys.by_secret("hash-1") == (ana, replace(KEY, last_used_at=START + 5))
    clock.pass_(1)
    await backend.api_keys.by_secret("hash-1")
    assert [key.last_used_at for key in await backend.api_keys.list("u_ana")] == [START + 65]
    assert await backend.api_keys.by_secret("unknown") is None


async def test_keys_are_listed_and_revoked_by_their_owner_alone(backend: Backend) -> None:
    await backend.accounts.add(person("ana"))
    second = replace(KEY, id="key_2", secret_hash="hash-2", created_at=START + 1)
    await backend.api_keys.add(second)
    await backend.api_keys.add(KEY)
    assert await backend.api_keys.list("u_ana") == (KEY, second)
    assert await backend.api_keys.list("u_ben") == ()
    assert not await backend.api_keys.revoke("u_ben", "key_1")
    assert await backend.api_keys.revoke("u_ana", "key_1")
    assert not await backend.api_keys.revoke("u_ana", "key_1")
    assert await backend.api_keys.by_secret("hash-1") is None
    assert await backend.api_keys.list("u_ana") == (second,)


async def test_a_disabled_user_has_no_credentials_until_enabled_again(backend: Backend) -> None:
    await backend.accounts.add(person("ana"))
    await backend.sessions.open("u_ana", "s1", lasts_s=100)
    await backend.sessions.add_link("u_ana", "l1", lasts_s=100)
    await backend.api_keys.add(KEY)
    await backend.accounts.change("u_ana", {"disabled": True})
    assert await backend.sessions.find("s1") is None
    assert await backend.sessions.redeem("l1") is None
    assert await backend.api_keys.by_secret("hash-1") is None
    await backend.accounts.change("u_ana", {"disabled": False})
    assert await backend.sessions.find("s1") is not None
    assert await backend.api_keys.by_secret("hash-1") is not None
    assert await backend.sessions.redeem("l1") is not None


@pytest.mark.parametrize("end", ["disabled", "revoked", "closed"])
async def test_a_key_that_was_just_used_ends_at_once(backend: Backend, end: str) -> None:
    await backend.accounts.add(person("ana"))
    await backend.api_keys.add(KEY)
    for _ in range(2):
        assert await backend.api_keys.by_secret("hash-1") is not None
    if end == "disabled":
        await backend.accounts.change("u_ana", {"disabled": True})
    elif end == "revoked":
        assert await backend.api_keys.revoke("u_ana", "key_1")
    else:
        assert await backend.erasure.close("u_ana")
    assert await backend.api_keys.by_secret("hash-1") is None


async def test_a_key_shows_its_user_as_he_is_now(backend: Backend) -> None:
    await backend.accounts.add(person("ana"))
    await backend.api_keys.add(KEY)
    for plan in ("free", "plus"):
        for _ in range(2):
            found = await backend.api_keys.by_secret("hash-1")
            assert found is not None
            assert found[0].plan == plan
        await backend.accounts.change("u_ana", {"plan": "plus"})


async def test_sessions_are_listed_for_their_user_newest_first_and_while_they_last(
    backend: Backend, clock: ManualClock
) -> None:
    for name in ("ana", "ben"):
        await backend.accounts.add(person(name))
    await backend.sessions.open("u_ben", "b1", lasts_s=100)
    for nth in (1, 2, 3):
        await backend.sessions.open("u_ana", f"a{nth}", lasts_s=10 * nth)
        clock.pass_(1)
    first = OpenSession("a1", START, START + 10)
    newest = OpenSession("a3", START + 2, START + 32)
    middle = OpenSession("a2", START + 1, START + 21)
    assert list(await backend.sessions.list("u_ana", limit=9)) == [newest, middle, first]
    assert list(await backend.sessions.list("u_ana", limit=2)) == [newest, middle]
    clock.pass_(7)
    assert list(await backend.sessions.list("u_ana", limit=9)) == [newest, middle]
    await backend.accounts.change("u_ana", {"disabled": True})
    assert list(await backend.sessions.list("u_ana", limit=9)) == []
    assert list(await backend.sessions.list("u_nobody", limit=9)) == []


async def test_those_are_alive_that_would_be_found(backend: Backend, clock: ManualClock) -> None:
    for name in ("ana", "ben"):
        await backend.accounts.add(person(name))
        for nth in (1, 2):
            await backend.sessions.open(f"u_{name}", f"{name}-{nth}", lasts_s=100 * nth)
            key = replace(KEY, id=f"key_{name}_{nth}", owner=f"u_{name}")
            await backend.api_keys.add(replace(key, secret_hash=f"hash-{name}-{nth}"))
    tokens = ["ana-1", "ana-2", "ben-1", "ben-2", "unknown"]
    hashes = [f"hash-{token}" for token in tokens]
    assert await backend.sessions.alive(tokens[1:]) == {"ana-2", "ben-1", "ben-2"}
    assert await backend.api_keys.alive(hashes[1:]) == set(hashes[1:4])
    clock.pass_(100)
    await backend.sessions.close(token_hash="ana-2")
    await backend.api_keys.revoke("u_ana", "key_ana_2")
    assert await backend.sessions.alive(tokens) == {"ben-2"}
    assert await backend.api_keys.alive(hashes) == {"hash-ana-1", "hash-ben-1", "hash-ben-2"}
    await backend.accounts.change("u_ben", {"disabled": True})
    assert await backend.sessions.alive(tokens) == frozenset()
    assert await backend.api_keys.alive(hashes) == {"hash-ana-1"}
    assert {key.last_used_at for key in await backend.api_keys.list("u_ana")} == {None}
    assert await backend.sessions.alive([]) == await backend.api_keys.alive([]) == frozenset()
