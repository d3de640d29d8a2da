"""What a provider's word about a person means for an account: who may come in, under which name,
with which role and plan.

An account is known by issuer and subject. No e-mail address and no name ever leads to one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tertulia.core.plans import FREE
from tertulia.core.types import User

# A name can be written in a log, a header and a mention: letters, digits and these.
_NAME_MARKS: Final = frozenset("._-@")
_NAME_CHARS: Final = 64
_SHORTEST_NAME: Final = 2
# Room for what makes a name the only one.
_BASE_CHARS: Final = 48
# The second and the third Ana are so many; who comes after them gets a tail that nobody has.
_NUMBERED: Final = 9

EVERYBODY: Final = "*"
# Between leaving for the provider and coming back: a person looks for a phone in between.
FLOW_S: Final = 600.0
# Paths of the page, in plain letters: what is none of them is no place to return to.
_INSIDE: Final = re.compile(
    r"/(?!v1(?:/|\Z))(?:[A-Za-z0-9_\-]{1,100}(?:/[A-Za-z0-9_\-]{1,100}){0,3})?\Z"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a user signs in by: a provider's name for somebody."""

    issuer: str
    subject: str
    user_id: str
    created_at: float


@dataclass(frozen=True, slots=True)
class Flow:
    """A sign-in that has begun: what must come back, and to whom it belongs. `tried` names the try
    that its address was counted with."""

    provider: str
    state: str
    nonce: str
    verifier: str
    return_to: str
    began_at: float
    tried: str


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a provider's signed word says of somebody."""

    subject: str
    claims: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NotVouched:
    """The provider did not take the code, or what it gave for it proves nothing; `why` is for the
    log and holds nothing of the answer."""

    kind: Literal["refused", "untrusted"]
    why: str


@dataclass(frozen=True, slots=True)
class AccountRules:
    """Who may come in by a provider, and what its claims mean here."""

    admit: tuple[str, ...] = ()
    role_claim: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    plan_claim: str | None = None
    plans: Mapping[str, str] = field(default_factory=dict)


def inside(path: str) -> str:
    """The path of our own page that is returned to; the first one for anything else."""
    return path if _INSIDE.match(path) else "/"


def is_admitted(claims: Mapping[str, Any], rules: AccountRules) -> bool:
    """Whether somebody new may come in: by the domain of an address that the provider verified, or
    because everybody may."""
    if EVERYBODY in rules.admit:
        return True
    email = claims.get("email")
    if not isinstance(email, str) or claims.get("email_verified") is not True:
        return False
    local, at, domain = email.rpartition("@")
    return bool(local and at) and domain.casefold() in rules.admit


def is_name(text: str) -> bool:
    """Whether an account can be called so."""
    is_long_enough = _SHORTEST_NAME <= len(text) <= _NAME_CHARS
    return is_long_enough and all(c.isalnum() or c in _NAME_MARKS for c in text)


def names_for(claims: Mapping[str, Any], tail: str) -> tuple[str, ...]:
    """Names for a new account, the best first; the last is made the only one by `tail`."""
    base = next(filter(None, map(_clean, _wishes(claims))), "person")
    numbered = (f"{base}-{n}" for n in range(2, _NUMBERED + 1))
    return base, *numbered, f"{base}-{tail}"


def changes_by_claims(user: User, claims: Mapping[str, Any], rules: AccountRules) -> dict[str, Any]:
    """What changes in an account at a sign-in. An absent claim changes nothing (S-51). One that is
    there sets: what the first of its values in the map says, or else the least that there is."""
    wanted: dict[str, Any] = {}
    role = _mapped(claims, rules.role_claim, rules.roles, "user")
    plan = _mapped(claims, rules.plan_claim, rules.plans, FREE)
    if role is not None and role != user.role:
        wanted["role"] = role
    if plan is not None and plan != user.plan:
        wanted["plan"] = plan
    return wanted


def _mapped(
    claims: Mapping[str, Any], claim: str | None, meanings: Mapping[str, str], least: str
) -> str | None:
    said = None if claim is None else _claim(claims, claim)
    if said is None:
        return None
    values = said if isinstance(said, list) else [said]
    # In the order of the map, so that who has two groups gets what is named first.
    return next((meaning for value, meaning in meanings.items() if value in values), least)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its whole name or, inside of others, by a path with dots."""
    if path in claims:
        return claims[path]
    here: Any = claims
    for part in path.split("."):
        if not isinstance(here, Mapping):
            return None
        here = here.get(part)
    return here


def _wishes(claims: Mapping[str, Any]) -> Iterable[str]:
    for claim in ("preferred_username", "email", "nickname", "name"):
        said = claims.get(claim)
        if isinstance(said, str):
            # The part before the @: a name is seen by administrators, an address by nobody.
            yield said.partition("@")[0]


def _clean(wish: str) -> str | None:
    spaced = unicodedata.normalize("NFKC", wish[: 4 * _NAME_CHARS]).split()
    letters = "".join(c for c in ".".join(spaced) if c.isalnum() or c in _NAME_MARKS)
    name = letters[:_BASE_CHARS].strip("".join(_NAME_MARKS))
    return name if len(name) >= _SHORTEST_NAME else None
