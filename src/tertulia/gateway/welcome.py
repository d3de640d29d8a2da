"""What a new installation needs before anybody can sign in: an administrator and a way in.

It must never print or log a secret: the caller says to whom it goes.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Protocol

from tertulia.core.types import User
from tertulia.gateway.auth import Minting, new_key, secret_hash
from tertulia.ports import Accounts, ApiKeys, Sessions

ADMIN = "admin"
# Long enough to be found in a terminal the next morning.
_LINK_S = 86_400.0


class Welcoming(Minting, Protocol):
    """What it takes to let somebody in; a `Desk` has it all."""

    @property
    def accounts(self) -> Accounts: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def api_keys(self) -> ApiKeys: ...


async def first_admin(desk: Welcoming) -> User | None:
    """The administrator that every installation begins with, made if there is nobody yet.

    None where there are users but no such name: one who was renamed or removed is not made anew.
    """
    admin = await desk.accounts.by_name(ADMIN)
    if admin is not None or await desk.accounts.count():
        return admin
    return await desk.accounts.add(
        User(desk.new_id("u"), ADMIN, "admin", "plus", None, desk.clock.now())
    )


async def sign_in_token(desk: Welcoming, user: User) -> str:
    """The secret of a link that signs this user in, once; earlier ones no longer do."""
    token = secrets.token_urlsafe(32)
    await desk.sessions.add_link(user.id, secret_hash(token), lasts_s=_LINK_S)
    return token


async def leave_key(desk: Welcoming, user: User, path: Path) -> None:
    """Leaves a working API key in `path`, for commands on this machine; only its owner reads it."""
    left = _left(path)
    if left is not None and await desk.api_keys.by_secret(secret_hash(left)):
        return
    key, secret = new_key(desk, user, "this machine")
    await desk.api_keys.add(key)
    _leave(path, secret)


def _left(path: Path) -> str | None:
    return path.read_text().strip() if path.is_file() else None


def _leave(path: Path, secret: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret)
