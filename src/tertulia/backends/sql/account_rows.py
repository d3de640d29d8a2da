"""Users, what they sign in by and their keys as rows of a table, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tertulia.backends.sql.rows import Row
from tertulia.core.deletions import name_mark
from tertulia.core.identities import Identity
from tertulia.core.types import ApiKey, User


def user_of(row: Row) -> User:
    """A row of `users`."""
    return User(
        id=row["id"],
        name=row["name"],
        role=row["role"],
        plan=row["plan"],
        password_hash=row["password_hash"],
        created_at=row["created_at"],
        disabled=bool(row["disabled"]),
        evaluation=bool(row["evaluation"]),
    )


def user_values(user: User) -> dict[str, Any]:
    """The columns of `users`."""
    return {
        "id": user.id,
        "name": user.name,
        "name_key": user.name.casefold(),
        "name_mark": name_mark(user.name),
        "role": user.role,
        "plan": user.plan,
        "password_hash": user.password_hash,
        "created_at": user.created_at,
        "disabled": user.disabled,
        "evaluation": user.evaluation,
    }


def identity_of(row: Row) -> Identity:
    """A row of `identities`."""
    return Identity(
        issuer=row["issuer"],
        subject=row["subject"],
        user_id=row["user_id"],
        created_at=row["created_at"],
    )


def api_key_of(row: Row) -> ApiKey:
    """A row of `api_keys`."""
    return ApiKey(
        id=row["id"],
        owner=row["owner"],
        name=row["name"],
        prefix=row["prefix"],
        secret_hash=row["secret_hash"],
        created_at=row["created_at"],
        last_used_at=row["last_used_at"],
    )


def api_key_values(key: ApiKey) -> dict[str, Any]:
    """The columns of `api_keys`, which are its fields."""
    return asdict(key)
