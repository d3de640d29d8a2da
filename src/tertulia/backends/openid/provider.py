"""One provider as its client sees it: the authorization code flow with PKCE, by Authlib.

It must never log or raise anything that a token, a code or a secret is in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from authlib.integrations.base_client import OAuthError
from authlib.oauth2.client import OAuth2Client

from tertulia.backends.openid.asking import ALL_S, Asking
from tertulia.backends.openid.discovery import Discovery
from tertulia.backends.openid.seal import Seal
from tertulia.backends.openid.tokens import UnknownKey, vouched
from tertulia.core.identities import Flow, NotVouched, Vouched
from tertulia.ports import Clock
from tertulia.ports_of_identities import ProviderAway


@dataclass(frozen=True, slots=True)
class Registration:
    """What this service is registered as at a provider."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    redirect_uri: str
    scopes: tuple[str, ...]


class OpenIdProvider:
    """The `Provider` port."""

    def __init__(self, ours: Registration, clock: Clock, *, answer_s: float = ALL_S) -> None:
        self._ours = ours
        self._clock = clock
        self._asking = Asking(
            ours.issuer,
            all_s=answer_s,
            client_id=ours.client_id,
            client_secret=ours.client_secret,
        )
        self._discovery = Discovery(ours.issuer, self._asking, clock)
        self._seal = Seal(ours.client_secret, issuer=ours.issuer, client_id=ours.client_id)

    async def address(self, flow: Flow) -> str:
        """Where the browser is sent."""
        where = await self._discovery.endpoints()
        client = OAuth2Client(None, client_id=self._ours.client_id, code_challenge_method="S256")
        url, _ = client.create_authorization_url(
            where.authorization,
            redirect_uri=self._ours.redirect_uri,
            scope=" ".join(self._ours.scopes),
            state=flow.state,
            code_verifier=flow.verifier,
            nonce=flow.nonce,
        )
        return str(url)

    async def vouch(
        self, flow: Flow, *, code: str, said_issuer: str | None
    ) -> Vouched | NotVouched:
        """What the provider's signed word says of who came back."""
        where = await self._discovery.endpoints()
        wanted = {self._ours.issuer} if where.names_itself else {self._ours.issuer, None}
        if said_issuer not in wanted:
            return NotVouched("untrusted", "the answer is another issuer's")
        try:
            async with self._asking.client(token_endpoint_auth_method=where.token_auth) as client:
                answer = await client.fetch_token(
                    where.token,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=flow.verifier,
                    redirect_uri=self._ours.redirect_uri,
                )
        except OAuthError:
            return NotVouched("refused", "it did not take the code")
        except (ValueError, TypeError, RecursionError):
            raise ProviderAway("its answer is no JSON object") from None
        return await self._proved(answer.get("id_token"), flow, answer.get("access_token"))

    async def _proved(
        self, token: object, flow: Flow, access_token: object
    ) -> Vouched | NotVouched:
        keys = await self._discovery.keys()
        for _ in range(2):
            try:
                return vouched(
                    token,
                    keys,
                    issuer=self._ours.issuer,
                    client_id=self._ours.client_id,
                    nonce=flow.nonce,
                    access_token=access_token if isinstance(access_token, str) else None,
                    now=self._clock.now(),
                )
            except UnknownKey:
                keys = await self._discovery.keys(beyond=keys)
        return NotVouched("untrusted", "no key of the provider is the one that signed")

    def seal(self, flow: Flow) -> str:
        """The flow, for nobody to read or change."""
        return self._seal.seal(flow)

    def unseal(self, sealed: str) -> Flow | None:
        """What was sealed for this provider; None for anything else."""
        return self._seal.unseal(sealed)
