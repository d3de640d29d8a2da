"""What was sent to a replica and is still there: our own dispatches, corrected by its reports.

A dispatch counts from the moment of its decision, or a burst would all see the same idle replica.
Time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# An older report tells of a load that is no more: it corrects nothing.
FRESH_S: Final = 0.3
# Between the decision and the request lie two writes, to the store and to the log. What was not
# sent by then hardly ever will be: its worker lost the turn, or died.
UNSENT_S: Final = 5.0
# A replica's speed is learned from its last ten or so prompts and batches.
WEIGHT: Final = 0.1
# What fewer tokens take is mostly not reading: it says nothing of the speed.
TELLING_TOKENS: Final = 128


@dataclass(slots=True)
class _Sent:
    """One dispatch. `ahead` is what had to be read up to its own last token, `losses` how often it
    was lost elsewhere before."""

    tokens: int
    ahead: int
    at: float
    losses: int = 0
    sent_at: float | None = None
    counted: bool = False  # in the last report


@dataclass(slots=True)
class DispatchLedger:
    """One replica's account. Invariant: `_open` are the dispatches that have not ended, `_unread`
    those of them whose first token has not come: of a thousand a few, which decisions look at.

    What others have sent is known from reports alone: `_reported` less what of it was ours.
    """

    _open: dict[str, _Sent] = field(default_factory=dict)
    _unread: dict[str, _Sent] = field(default_factory=dict)
    _others_running: int = 0
    _others_owed: int = 0
    _owed_scale: float = 1.0
    _reported_at: float | None = None
    _reported_prefill_per_s: float | None = None
    _prefill_per_s: float | None = None
    _gap_s: float | None = None

    def dispatch(self, request_id: str, tokens: int, now: float, *, losses: int = 0) -> None:
        """It was decided to send these prompt tokens, less what is known there, to the replica.

        `losses`: how many replicas it has been lost on.
        """
        self.forget_unsent(now)
        sent = _Sent(tokens, self.owed_tokens + tokens, now, losses)
        self._open[request_id] = self._unread[request_id] = sent

    def sent(self, request_id: str, now: float) -> None:
        """The request is on its way, wherever it was decided."""
        sent = self._open.get(request_id)
        if sent is None:
            sent = self._open[request_id] = self._unread[request_id] = _Sent(0, 0, now)
        sent.sent_at = now

    def began(self, request_id: str, now: float) -> None:
        """Its first token has come: it owes nothing any more."""
        sent = self._unread.pop(request_id, None)
        if sent is None:
            return
        if sent.ahead >= TELLING_TOKENS and now > sent.at:
            self._prefill_per_s = _learned(self._prefill_per_s, sent.ahead / (now - sent.at))

    def said(self, gap_s: float) -> None:
        """Two of its tokens came so far apart."""
        self._gap_s = _learned(self._gap_s, gap_s)

    def ended(self, request_id: str) -> None:
        """It has left the replica, however."""
        self._open.pop(request_id, None)
        self._unread.pop(request_id, None)

    def reported(
        self,
        *,
        running: int,
        owed_tokens: int | None,
        prefill_per_s: float | None,
        at: float,
        now: float,
    ) -> None:
        """What the replica said of itself at `at`, with everything that anybody sent it."""
        if now - at > FRESH_S or (self._reported_at is not None and at <= self._reported_at):
            return
        self._reported_at = at
        for sent in self._open.values():
            sent.counted = sent.sent_at is not None and sent.sent_at <= at
        ours = sum(sent.counted for sent in self._open.values())
        self._others_running = max(0, running - ours)
        ours_owed = sum(sent.tokens for sent in self._unread.values() if sent.counted)
        if owed_tokens is not None:
            self._others_owed = max(0, owed_tokens - ours_owed)
            self._owed_scale = min(1.0, owed_tokens / ours_owed) if ours_owed else 1.0
        self._reported_prefill_per_s = prefill_per_s

    @property
    def running(self) -> int:
        """Sequences there, of everybody."""
        return self._others_running + len(self._open)

    @property
    def retrying(self) -> int:
        """Of ours, those that were lost elsewhere and have not said anything here yet."""
        return sum(sent.losses > 0 for sent in self._unread.values())

    @property
    def owed_tokens(self) -> int:
        """Prompt tokens that it has still to read."""
        owed = sum(
            sent.tokens * (self._owed_scale if sent.counted else 1.0)
            for sent in self._unread.values()
        )
        return self._others_owed + round(owed)

    @property
    def prefill_per_s(self) -> float | None:
        """Its own word, or as it was measured from here."""
        return self._reported_prefill_per_s or self._prefill_per_s

    @property
    def gap_s(self) -> float | None:
        """Between two tokens of a reply, of late."""
        return self._gap_s

    def forget_gap(self) -> None:
        """How fast it speaks is to be seen anew."""
        self._gap_s = None

    def restarted(self) -> None:
        """Another process answers there now: nothing that was known of the last one holds."""
        self._others_running = self._others_owed = 0
        self._owed_scale = 1.0
        self._reported_at = self._reported_prefill_per_s = None
        self._prefill_per_s = self._gap_s = None

    def forget_unsent(self, now: float) -> None:
        """Drops what was decided and never sent."""
        for request_id, sent in list(self._unread.items()):
            if sent.sent_at is None and now - sent.at > UNSENT_S:
                self.ended(request_id)


def _learned(known: float | None, new: float) -> float:
    return new if known is None else known + WEIGHT * (new - known)
