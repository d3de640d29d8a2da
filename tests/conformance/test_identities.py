"""Promises of the `Identities` port."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.core.identities import Identity
from tests.conformance.world import START, Backend, person

pytestmark = pytest.mark.anyio

ISSUER = "https://id.example.org"
ANA = Identity(ISSUER, "248289761001", "u_ana", START)


async def test_an_identity_leads_to_its_user_and_no_other_does(backend: Backend) -> None:
    ana = person("ana")
    assert await backend.identities.find(ISSUER, ANA.subject) is None
    assert await backend.identities.add(ana, ANA) == ana
    assert await backend.identities.find(ISSUER, ANA.subject) == ana
    assert await backend.accounts.by_name("ana") == ana
    for issuer, subject in (
        (ISSUER + "/", ANA.subject),
        (ISSUER.upper(), ANA.subject),
        (ISSUER, ANA.subject + " "),
        (ISSUER, "u_ana"),
        (ANA.subject, ISSUER),
    ):
        assert await backend.identities.find(issuer, subject) is None


async def test_subjects_differ_by_the_case_of_a_letter(backend: Backend) -> None:
    await backend.identities.add(person("ana"), replace(ANA, subject="aB"))
    await backend.identities.add(person("ben"), replace(ANA, subject="Ab", user_id="u_ben"))
    found = await backend.identities.find(ISSUER, "Ab")
    assert found is not None
    assert found.name == "ben"


async def test_a_disabled_user_is_found_as_one(backend: Backend) -> None:
    await backend.identities.add(person("ana"), ANA)
    await backend.accounts.change("u_ana", {"disabled": True})
    found = await backend.identities.find(ISSUER, ANA.subject)
    assert found is not None
    assert found.disabled


async def test_a_taken_name_adds_nothing(backend: Backend) -> None:
    await backend.accounts.add(person("ANA", id="u_other"))
    assert await backend.identities.add(person("ana"), ANA) is None
    assert await backend.identities.find(ISSUER, ANA.subject) is None
    assert await backend.identities.of_user("u_ana") == []
    assert await backend.accounts.find("u_ana") is None


async def test_the_name_of_somebody_who_left_stays_taken(backend: Backend) -> None:
    await backend.identities.add(person("ana"), ANA)
    await backend.erasure.close("u_ana")
    assert await backend.identities.find(ISSUER, ANA.subject) is None
    again = replace(ANA, user_id="u_new")
    assert await backend.identities.add(person("ana", id="u_new"), again) is None
    assert await backend.identities.add(person("ana-2", id="u_new"), again) is not None


async def test_who_has_the_identity_already_is_given_and_nothing_is_added(
    backend: Backend,
) -> None:
    ana = person("ana")
    await backend.identities.add(ana, ANA)
    second = person("second")
    assert await backend.identities.add(second, replace(ANA, user_id=second.id)) == ana
    assert await backend.accounts.by_name("second") is None
    assert await backend.accounts.count() == 1


@pytest.mark.parametrize("names", [["ana"] * 8, [f"ana{n}" for n in range(8)]])
async def test_of_many_who_come_at_once_by_one_identity_one_account_is_made(
    backend: Backend, names: list[str]
) -> None:
    users = [person(name, id=f"u_{n}") for n, name in enumerate(names)]
    given = await asyncio.gather(
        *(backend.identities.add(user, replace(ANA, user_id=user.id)) for user in users)
    )
    assert await backend.accounts.count() == 1
    found = await backend.identities.find(ISSUER, ANA.subject)
    assert found is not None
    assert {user.id for user in given if user is not None} == {found.id}


async def test_a_user_s_identities_are_listed_oldest_first(backend: Backend) -> None:
    await backend.identities.add(person("ana"), ANA)
    await backend.identities.add(person("ben"), replace(ANA, subject="ben", user_id="u_ben"))
    assert await backend.identities.of_user("u_ana") == [ANA]
    assert await backend.identities.of_user("nobody") == []
