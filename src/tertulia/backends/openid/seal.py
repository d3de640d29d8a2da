"""Hides what a sign-in has begun with in the cookie of the browser that began it.

Any gateway with the same configuration opens it: the key comes from the client's secret, which they
share, so that no gateway has to remember anything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Final

from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from tertulia.core.identities import Flow

_HEADER: Final = {"alg": "dir", "enc": "A256GCM"}
_ALGORITHMS: Final = ["dir", "A256GCM"]
# A browser keeps no longer cookie.
_SEALED_CHARS: Final = 4096


class Seal:
    """Seals by one provider's secret."""

    def __init__(self, secret: str, *, issuer: str, client_id: str) -> None:
        # Slow on purpose, once at the start: whoever holds a cookie can try secrets on it at home.
        salt = json.dumps(["tertulia sign-in", issuer, client_id]).encode()
        key = hashlib.scrypt(secret.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)
        self._key = OctKey.import_key(key)

    def seal(self, flow: Flow) -> str:
        """The flow, for nobody to read or change."""
        text = json.dumps(asdict(flow)).encode()
        return jwe.encrypt_compact(_HEADER, text, self._key, algorithms=_ALGORITHMS)

    def unseal(self, sealed: str) -> Flow | None:
        """What was sealed here; None for anything else."""
        if len(sealed) > _SEALED_CHARS:
            return None
        try:
            found = jwe.decrypt_compact(sealed, self._key, algorithms=_ALGORITHMS)
        except (JoseError, ValueError, TypeError, KeyError):
            return None
        assert found.plaintext is not None
        return Flow(**json.loads(found.plaintext))
