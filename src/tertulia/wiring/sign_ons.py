"""The providers that the settings name, as the gateway meets them. Nothing is asked of one yet: the
service starts without them."""

from __future__ import annotations

from collections.abc import Mapping

from tertulia.config import Settings
from tertulia.core.identities import AccountRules
from tertulia.gateway.desk import SignOn
from tertulia.gateway.single_sign_on import callback_path
from tertulia.oidc_table import OidcTable
from tertulia.ports import Clock
from tertulia.wiring.stores import needs_extra


def sign_ons(settings: Settings, clock: Clock) -> Mapping[str, SignOn]:
    """Each provider by its name; CantOpen says what is missing for them."""
    return {
        name: _sign_on(name, table, settings.server.public_url or "", clock)
        for name, table in settings.oidc.items()
    }


def _sign_on(name: str, table: OidcTable, public_url: str, clock: Clock) -> SignOn:
    with needs_extra(f"[oidc.{name}]"):
        from tertulia.backends.openid import OpenIdProvider, Registration
    ours = Registration(
        issuer=table.issuer,
        client_id=table.client_id,
        client_secret=table.client_secret.get_secret_value(),
        redirect_uri=public_url + callback_path(name),
        scopes=table.scopes,
    )
    rules = AccountRules(
        admit=table.admit,
        role_claim=table.role_claim,
        roles=table.roles,
        plan_claim=table.plan_claim,
        plans=table.plans,
    )
    return SignOn(name, table.title, table.issuer, OpenIdProvider(ours, clock), rules)
