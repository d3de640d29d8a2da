"""Messages that cost nothing are bounded all the same, and by no budget."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tertulia.gateway import uncharged
from tests.lanes.gateway_rig import FORBIDDEN, ask, events, new_conversation, rig
from tests.lanes.test_http_canned import overrun

pytestmark = pytest.mark.anyio


async def test_refused_messages_are_stored_only_so_often() -> None:
    with patch.object(uncharged, "ALLOWED", 2):
        async with rig() as here:
            ana, ben = await here.user("ana"), await here.user("ben")
            bad = [await new_conversation(ana) for _ in range(3)]
            first, _, third = [await ask(ana, one, FORBIDDEN, key=one) for one in bad]
            again = await ask(ana, bad[0], FORBIDDEN, key=bad[0])
            good = await ask(ana, await new_conversation(ana), "Why?")
            other = await ask(ben, await new_conversation(ben), FORBIDDEN)
            n_stored = len(here.backend.store.turns)
    assert [kind for _, kind, _ in events(first.text)] == ["meta", "refusal", "done"]
    assert again.text == first.text
    assert (third.status_code, third.json()["code"]) == (429, "too_many_requests")
    assert 1 <= int(third.headers["retry-after"]) <= 60
    assert "event: done" in good.text
    assert "event: refusal" in other.text
    assert n_stored == 4


async def test_ready_replies_are_given_only_so_often() -> None:
    with patch.object(uncharged, "ALLOWED", 1):
        async with overrun() as here:
            ana = await here.user("ana")
            told = [await ask(ana, await new_conversation(ana), "Hello", key=k) for k in "ab"]
    assert [answer.status_code for answer in told] == [200, 429]
