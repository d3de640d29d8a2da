"""Who a request is from. It is made by `auth` alone; nothing a caller sends can set it."""

from __future__ import annotations

from dataclasses import dataclass

from tertulia.core.types import Session, User


@dataclass(frozen=True, slots=True)
class Caller:
    """A user and the hash of the secret that proved it: a session's token or an API key.

    `session` is there for a browser and None for a program.
    """

    user: User
    credential: str
    session: Session | None = None
