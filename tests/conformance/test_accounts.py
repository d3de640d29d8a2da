"""Promises of the `Accounts`, `Sessions` and `ApiKeys` ports."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.core.types import ApiKey, Session, Spent
from tests.conformance.world import (
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


async def test_what_is_spent_is_of_today(backend: Backend, clock: ManualClock) -> None:
    midnight = START - START % 86_400 + 86_400
    await answered(backend, stateless(1), charged=150)
    await admitted(backend, stateless(2))
    assert await backend.accounts.spent("ana") == Spent(150, 300, ("m_r2",), midnight)
    clock.seconds = midnight
    assert await backend.accounts.spent("ana") == Spent(0, 300, ("m_r2",), midnight + 86_400)
    assert await backend.accounts.spent("ben") == Spent(0, 0, (), midnight + 86_400)


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
    assert found == Session(ana, "s1", START)
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
    ana = person("ana")
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
