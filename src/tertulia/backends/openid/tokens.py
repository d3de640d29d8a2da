"""Whether an id token proves who somebody is. Authlib and joserfc check it; what they are to ask
for is written here, and that no signature but one by a public key counts."""

from __future__ import annotations

from typing import Any, Final

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from tertulia.core.identities import NotVouched, Vouched

# Signatures by public keys alone: `none` proves nothing, and for a shared secret's (HS…) whoever
# knows a public key could pass it off as the secret.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
# How far two clocks may be apart.
_SKEW_S: Final = 60
# OpenID Connect, section 2: a subject has at most 255 characters.
_SUBJECT_CHARS: Final = 255
_TOKEN_CHARS: Final = 65_536


class UnknownKey(Exception):
    """No key of the set is the one that signed it: the provider may have a new one."""


def vouched(
    token: object,
    keys: KeySet,
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    access_token: str | None,
    now: float,
) -> Vouched | NotVouched:
    """What the token says, if everything about it is right; UnknownKey if another set may do."""
    if not isinstance(token, str) or len(token) > _TOKEN_CHARS:
        return NotVouched("untrusted", "there is no id token")
    try:
        read = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
        claims = CodeIDToken(
            read.claims,
            read.header,
            options={
                "iss": {"essential": True, "value": issuer},
                "aud": {"essential": True, "value": client_id},
                "nonce": {"essential": True, "value": nonce},
            },
            params={"client_id": client_id, "nonce": nonce, "access_token": access_token},
        )
        claims.validate(now=int(now), leeway=_SKEW_S)
    except InvalidKeyIdError:
        raise UnknownKey from None
    except JoseError as error:
        claim = getattr(error, "claim", None)
        return NotVouched("untrusted", f"{error.error} {claim or ''}".strip())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # What is no token at all makes the libraries stumble in their own ways.
        return NotVouched("untrusted", type(error).__name__)
    subject: Any = read.claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _SUBJECT_CHARS:
        return NotVouched("untrusted", "the subject is none")
    return Vouched(subject, read.claims)
