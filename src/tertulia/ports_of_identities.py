"""What signing in by a provider of OpenID Connect needs from the world: who signs in by which
identity, and the provider itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tertulia.core.identities import Flow, Identity, NotVouched, Vouched
from tertulia.core.types import User


class ProviderAway(Exception):
    """The provider did not answer in time, or not as one: nothing is known of anybody."""


class Identities(Protocol):
    """Who signs in by a provider, by issuer and subject, which are compared letter by letter.

    Promises
    * `find` gives the user of an identity, disabled or not; None if nobody has it.
    * `add` stores the user and what he signs in by in one transaction and gives the user. Where
      somebody has the identity already, who perhaps came at the same moment, it gives that one and
      changes nothing. None, and nothing is changed, if the name is taken (`Accounts.add`).
    * `of_user` gives all that a user signs in by, the oldest first.
    * With an account its identities go (`Erasure.close`).
    """

    async def find(self, issuer: str, subject: str) -> User | None: ...
    async def add(self, user: User, identity: Identity) -> User | None: ...
    async def of_user(self, user_id: str) -> Sequence[Identity]: ...


class Provider(Protocol):
    """One provider. Its calls have an end: ProviderAway after seconds, and for long answers.

    Promises
    * `address` is where the browser is sent for a flow; the provider is asked for it when it is
      needed, and not when the service starts.
    * `vouch` redeems the code that came back and gives what the provider's signed word says, once
      signature, issuer, audience, time and nonce are right; NotVouched otherwise.
    * `seal` hides a flow in a text that only gateways with the same configuration can read, and
      `unseal` reads it; None for what was not sealed so, whoever made it.
    """

    async def address(self, flow: Flow) -> str: ...
    async def vouch(
        self, flow: Flow, *, code: str, said_issuer: str | None
    ) -> Vouched | NotVouched: ...
    def seal(self, flow: Flow) -> str: ...
    def unseal(self, sealed: str) -> Flow | None: ...
