"""The replicas that are there, by their own word: one hash, with ages by the server's clock.

Whoever can write to Valkey can write reports. What is none is left out, and where the fleet's
replicas have a key only reports sealed with it are believed: prompts go to their addresses. A
sealed report is stamped, so that an old one that somebody kept is no news.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

import structlog
from pydantic import TypeAdapter, ValidationError

from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.scripts import script
from tertulia.core.fleet import FORGOTTEN_S, ReplicaReport, is_sound
from tertulia.ports import Clock

_log = structlog.get_logger(__name__)

_REPORT: Final = script("report")
_LEAVE: Final = script("leave")
_REPORTS: Final = script("reports")

_KEY: Final = "tertulia:registry"
_FORGOTTEN_MS: Final = int(FORGOTTEN_S * 1000)
# Reports come every few hundred milliseconds: one that is late is followed by a newer one.
_BUDGET_S: Final = 0.5
# A report has some hundred bytes; no fleet of ours has more replicas.
_REPORT_BYTES: Final = 4096
_MOST_REPORTS: Final = 1000
# Milliseconds since 1970 have 13 digits.
_STAMP_DIGITS: Final = 15


class ValkeyRegistry:
    """The `Registry` port. `key` is the one that the fleet's replicas share, if they have one.

    Each report has a stamp above the last one's: the milliseconds of the replica's clock, which
    must not go back from one start to the next. A reader believes no stamp below the highest that
    it has seen of a name, and takes the same one again for as old as it is.
    """

    def __init__(self, client: Client, *, key: str | None, clock: Clock) -> None:
        self._client = client
        self._key = key.encode() if key is not None else None
        self._clock = clock
        self._stamp = 0
        self._highest: dict[str, tuple[int, float]] = {}  # by name: stamp, when it was first read
        self._refused: set[str] = set()

    async def report(self, report: ReplicaReport) -> None:
        """Notes what a replica says of itself."""
        told = asdict(report)
        del told["age_s"]
        self._stamp = max(self._stamp + 1, int(self._clock.now() * 1000))
        text = b"%d %b" % (self._stamp, json.dumps(told, separators=(",", ":")).encode())
        words = (report.name, report.incarnation, self._seal(text) + b" " + text, _FORGOTTEN_MS)
        await self._client.run(_REPORT, [_KEY], *words, budget_s=_BUDGET_S)

    async def leave(self, name: str, incarnation: str) -> None:
        """The replica ends; its successor's report, if there is one, stays."""
        await self._client.run(_LEAVE, [_KEY], name, incarnation, budget_s=_BUDGET_S)

    async def reports(self) -> Sequence[ReplicaReport]:
        """Every replica's newest report with its age, sorted by name."""
        limits = (_FORGOTTEN_MS, _REPORT_BYTES, _MOST_REPORTS)
        told = await self._client.run(_REPORTS, [_KEY], *limits, budget_s=_BUDGET_S)
        found: dict[str, ReplicaReport] = {}
        for age_ms, sealed in zip(told[::2], told[1::2], strict=True):
            report = self._opened(sealed, age_ms / 1000)
            if report is not None:
                found[report.name] = report
        return [found[name] for name in sorted(found)]

    def _seal(self, text: bytes) -> bytes:
        """What only the holders of the key can make; without a key anybody is believed."""
        return hmac.digest(self._key, text, sha256).hex().encode() if self._key else b"-"

    def _opened(self, sealed: bytes, age_s: float) -> ReplicaReport | None:
        """A report, also of a replica of another version, which may tell more than we know."""
        seal, _, text = sealed.partition(b" ")
        if self._key is not None and not hmac.compare_digest(seal, self._seal(text)):
            return None
        stamp, _, told = text.partition(b" ")
        if not stamp.isdigit() or len(stamp) > _STAMP_DIGITS:
            return None
        try:
            report = _TYPES.validate_json(told, strict=True)
        except ValidationError:
            return None
        if not is_sound(report) or not is_plain_http(report.url):
            return None
        if self._key is not None:
            age_s = max(age_s, self._age_s(report.name, int(stamp)))
        return replace(report, age_s=age_s) if age_s <= FORGOTTEN_S else None

    def _age_s(self, name: str, stamp: int) -> float:
        """How long this stamp has been the replica's newest here; infinite for an older one."""
        now = self._clock.now()
        highest, seen_at = self._highest.get(name, (-1, now))
        if stamp < highest:
            if name not in self._refused:  # once, not four times a second
                self._refused.add(name)
                _log.warning("old_report_refused", replica=name)
            return math.inf
        if stamp > highest:
            self._refused.discard(name)
            self._highest.pop(name, None)
            self._highest[name] = (stamp, now)
            if len(self._highest) > _MOST_REPORTS:
                del self._highest[next(iter(self._highest))]
            return 0.0
        return now - seen_at


def is_plain_http(url: str) -> bool:
    """An address on a private network, without credentials and whatever else could mislead."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    plain = f"http://{parts.netloc}{parts.path}"
    return url == plain and bool(parts.hostname) and port != 0 and "@" not in url and url.isascii()


_TYPES: Final = TypeAdapter(ReplicaReport)
