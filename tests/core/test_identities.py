"""What a provider's word means for an account."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.identities import (
    AccountRules,
    changes_by_claims,
    inside,
    is_admitted,
    is_name,
    names_for,
)
from tertulia.core.types import User

ANA = User("u_ana", "ana", "admin", "plus", None, 0.0)
RULES = AccountRules(
    admit=("example.org",),
    role_claim="groups",
    roles={"chat-admins": "admin", "staff": "user"},
    plan_claim="resource.chat.plan",
    plans={"gold": "plus", "silver": "free"},
)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", "/"),
        ("/c/c_01J9-X", "/c/c_01J9-X"),
        ("/operations", "/operations"),
        ("/v1", "/"),
        ("/v1/auth/logout", "/"),
        ("/v10", "/v10"),
        ("", "/"),
        ("c/x", "/"),
        ("//evil.example", "/"),
        ("/\\evil", "/"),
        ("/c//x", "/"),
        ("/c/x\n", "/"),
        ("/c/é", "/"),
        ("/a/b/c/d/e", "/"),
        ("/" + "a" * 101, "/"),
    ],
)
def test_only_a_path_of_the_page_is_returned_to(path: str, place: str) -> None:
    assert inside(path) == place


@given(st.text(max_size=60))
def test_whatever_is_asked_for_the_way_back_stays_inside(path: str) -> None:
    place = inside(path)
    assert place.startswith("/")
    assert not place.startswith(("//", "/\\", "/v1/"))
    assert place.isascii()
    assert place.isprintable()


@pytest.mark.parametrize(
    ("email", "admitted"),
    [
        ("ana@example.org", True),
        ("ana@example.ORG", True),
        ('"a@b"@example.org', True),
        ("ana@example.org@other.example", False),
        ("ana@example.org.", False),
        ("ana", False),
        ("example.org", False),
        ("@example.org", False),
        (None, False),
        (7, False),
    ],
)
def test_the_domain_behind_the_last_at_admits(email: object, *, admitted: bool) -> None:
    assert is_admitted({"email": email, "email_verified": True}, RULES) is admitted


def test_an_address_that_the_provider_did_not_verify_admits_nobody() -> None:
    for verified in (False, None, "true", 1):
        claims = {"email": "ana@example.org", "email_verified": verified}
        assert not is_admitted(claims, RULES)
    assert not is_admitted({"email": "ana@example.org"}, RULES)


def test_everybody_needs_no_address() -> None:
    assert is_admitted({}, AccountRules(admit=("*",)))
    assert not is_admitted({}, AccountRules())


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "ana", "email": "other@example.org"}, "ana"),
        ({"preferred_username": "ana@example.org"}, "ana"),
        ({"preferred_username": "!", "email": "ana.b@example.org"}, "ana.b"),
        ({"name": "Ana María  López"}, "Ana.María.López"),
        ({"nickname": "--ana--"}, "ana"),
        ({"name": "李 小龍"}, "李.小龍"),
        ({"name": "x" * 300}, "x" * 48),
        ({"preferred_username": 5, "name": None}, "person"),
        ({"name": "<i>"}, "person"),
        ({}, "person"),
    ],
)
def test_a_new_account_is_called_as_the_provider_calls_it(
    claims: dict[str, Any], name: str
) -> None:
    names = names_for(claims, "9f3a")
    assert names[0] == name
    assert names[1] == f"{name}-2"
    assert names[-1] == f"{name}-9f3a"
    assert len(set(names)) == 10


@given(st.dictionaries(st.sampled_from(["preferred_username", "email", "name"]), st.text()))
def test_every_name_is_one_that_a_person_could_register(claims: dict[str, Any]) -> None:
    assert all(map(is_name, names_for(claims, "9f3a")))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("an", True),
        ("ana.lopez-2_b@example.org", True),
        ("李小龍", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("a", False),
        ("", False),
        ("ana maria", False),
        ("ana\n", False),
        ("<i>", False),
    ],
)
def test_a_name_is_letters_digits_and_four_marks(text: str, is_one: bool) -> None:
    assert is_name(text) == is_one


@pytest.mark.parametrize(
    ("claims", "changes"),
    [
        # S-51: what is not said changes nothing.
        ({}, {}),
        ({"groups": None, "resource": None}, {}),
        ({"resource": {"chat": {}}}, {}),
        ({"resource": {"chat": "gold"}}, {}),
        # What is said is set.
        ({"groups": ["other", "chat-admins"]}, {}),
        ({"groups": "chat-admins"}, {}),
        ({"groups": ["staff"]}, {"role": "user"}),
        ({"groups": ["staff", "chat-admins"]}, {}),
        ({"groups": []}, {"role": "user"}),
        ({"groups": "other"}, {"role": "user"}),
        ({"groups": {"odd": 1}}, {"role": "user"}),
        ({"groups": 5}, {"role": "user"}),
        ({"resource": {"chat": {"plan": "gold"}}}, {}),
        ({"resource": {"chat": {"plan": "silver"}}}, {"plan": "free"}),
        ({"resource": {"chat": {"plan": "lead"}}}, {"plan": "free"}),
        ({"resource.chat.plan": "silver"}, {"plan": "free"}),
        (
            {"groups": [], "resource": {"chat": {"plan": []}}},
            {"role": "user", "plan": "free"},
        ),
    ],
    ids=str,
)
def test_what_claims_change(claims: dict[str, Any], changes: dict[str, Any]) -> None:
    assert changes_by_claims(ANA, claims, RULES) == changes


def test_claims_that_nobody_gave_a_meaning_change_nothing() -> None:
    claims = {"groups": ["chat-admins"], "role": "admin", "plan": "plus"}
    user = User("u_ben", "ben", "user", "free", None, 0.0)
    assert changes_by_claims(user, claims, AccountRules(admit=("*",))) == {}
    assert changes_by_claims(user, claims, RULES) == {"role": "admin"}
