"""Bugs planted on purpose in forked processes, by name: the checker must report each (C20).

A plant that no longer fits its place is an error, never a silent pass. What another run of faults
would be needed for is said beside each: `only` and `dose` of its scene.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest.mock import patch

from tertulia import ending
from tertulia.backends import transitions
from tertulia.backends.checks import RulesChecks
from tertulia.backends.postgres import turns as postgres_turns
from tertulia.backends.postgres.turns import PostgresTurns
from tertulia.backends.valkey import log as valkey_log
from tertulia.backends.valkey.entries import packed
from tertulia.backends.valkey.log import ValkeyLog
from tertulia.backends.valkey.scripts import Script
from tertulia.core.types import (
    Append,
    Entry,
    Fenced,
    GenerateRequest,
    Held,
    Limits,
    Outcome,
    Refusal,
    Turn,
    Usage,
    Verdict,
)
from tertulia.worker import answer, speak
from tests.chaos.nemesis import Dose
from tests.chaos.people import Habits

_NOTHING: Final = Dose(
    baseline_s=1.0, gateway_kills=0, engine_kills=0, engine_freezes=0, engine_slow=0,
    engine_deaf=0, engine_breaks=0, worker_kills=0, worker_freezes=0, lost_with_owner=0,
    valkey_kills=0, valkey_freezes=0, valkey_flushes=0, valkey_promotions=0, valkey_cuts=0,
    postgres_kills=0, postgres_freezes=0, partitions=0, breaks=0, lost_answers=0, full_disks=0,
    clock_jumps=0, quiet_auths=0,
)  # fmt: skip


_PEACE: Final = replace(_NOTHING, baseline_s=3.0)


@dataclass(frozen=True, slots=True)
class Mutant:
    """How to plant it, and the scene in which it shows."""

    plant: Callable[[], None]
    seen_by: tuple[str, ...]  # any of these checks must report it
    dose: Dose = field(default_factory=lambda: _PEACE)
    habits: Habits = field(default_factory=lambda: Habits(rate=8.0))
    # Which roles have it; the others are sound.
    roles: str = "gw"
    step_s: float = 0.015
    only: tuple[str, ...] = ("F0",)  # no phase but the baseline


def plant(name: str, role: str) -> None:
    """Plants a bug in this process, if it belongs into this role."""
    if role[0] in MUTANTS[name].roles:
        MUTANTS[name].plant()


def _put(place: Any, name: str, value: Any) -> None:
    assert hasattr(place, name), (place, name)
    patch.object(place, name, value).start()


def _replaced(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def _in_script(name: str, *changes: tuple[str, str]) -> None:
    """Changes the text of a Lua script."""
    sound: Script = getattr(valkey_log, name)
    body = _replaced(sound.body.decode(), *changes).encode()
    sha = hashlib.sha1(body, usedforsecurity=False).hexdigest()
    _put(valkey_log, name, Script(sound.name, body, sha))


def _no_fence() -> None:
    _in_script(
        "_APPEND",
        ("if tonumber(head[1]) > epoch then\n  return 'stale'\nend\n", ""),
        ("if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then", "if head[2] ~= ARGV[2] then"),
    )


def _no_checks() -> None:
    """Everybody adds whatever he has, wherever the log ends. Without the numbers alone nothing goes
    wrong, as fence and read are one step: docs/explanation/turn-protocol.md."""
    _no_fence()
    _in_script(
        "_APPEND",
        ("if first > held + 1 then\n  return 'missing'\nend\n", ""),
        ("if last == held then", "if false then"),
        ("if first <= held then\n  return 'stale'\nend\n", ""),
        ("redis.call('XADD', KEYS[2], 'NOMKSTREAM', id,", "redis.call('XADD', KEYS[2], '*',"),
        (
            "redis.call('HSET', KEYS[1], 'last', ARGV[4])",
            "redis.call('HSET', KEYS[1], 'last', ARGV[4])",
        ),
    )


def _send_before_append() -> None:
    """Followers are shown what a writer is about to append."""
    sound = ValkeyLog.append
    body = (
        b"-- Tells followers of a batch.\n"
        b"local said = ARGV[1] .. ' ' .. ARGV[3] .. '\\n' .. ARGV[4]\n"
        b"redis.call('SPUBLISH', KEYS[1], said)\n"
        b"return 1\n"
    )
    early = Script("early", body, hashlib.sha1(body, usedforsecurity=False).hexdigest())

    async def append(
        self: ValkeyLog, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        if entries:
            first, last = entries[0].seq, entries[-1].seq
            await self._run(early, reply_id, attempt, first, last, packed(entries))
            await asyncio.sleep(0.3)
        return await sound(self, reply_id, epoch, attempt, entries)

    _put(ValkeyLog, "append", append)


def _settle_whoever_finishes() -> None:
    sound = PostgresTurns.finish

    async def finish(self: PostgresTurns, held: Held, outcome: Outcome) -> bool:
        done = await sound(self, held, outcome)
        async with self._database.transaction() as step:
            await step._connection.execute(
                "INSERT INTO settlements SELECT owner, reply_id, epoch + 1000, settled_ms,"
                " charged, input_tokens, cached_tokens, output_tokens, plan, model, budgets"
                " FROM settlements WHERE owner = $1 AND reply_id = $2"
                " ON CONFLICT DO NOTHING",
                held.owner, held.reply_id,
            )  # fmt: skip
        return done

    _put(PostgresTurns, "finish", finish)


def _free_without_charge() -> None:
    sound = ending.outcome_of

    def outcome_of(*args: Any, **kwargs: Any) -> Outcome:
        return replace(sound(*args, **kwargs), usage=Usage())

    _put(ending, "outcome_of", outcome_of)


def _stop_without_fence() -> None:
    """A gateway's stop looks at the log and leaves its writer in place."""

    async def fence(self: ValkeyLog, reply_id: str, epoch: int, attempt: int) -> Fenced | None:
        view = await self.read(reply_id, 0)
        return Fenced(view.attempt, tuple(view.entries)) if view else Fenced(attempt, ())

    _put(ValkeyLog, "fence", fence)


def _ignore_loss() -> None:
    """Neither the server nor a claimer knows an empty log for one that was lost."""

    async def take_log(log: Any, turn: Turn) -> Fenced | None:
        found: Fenced | None = await log.fence(turn.reply_id, turn.epoch, turn.attempt)
        return found

    _put(ending, "take_log", take_log)
    _put(answer, "take_log", take_log)
    _in_script("_FENCE", ("elseif epoch ~= 1 then\n  attempt = attempt + 1\nend", "end"))


def _append_what_is_left() -> None:
    """The owner of a lost log goes on as if its old entries were still there."""
    _in_script(
        "_APPEND",
        ("if not head[1] then\n  return 'missing'\nend\n", _MAKE_A_HEAD),
        ("'NOMKSTREAM', ", ""),
    )


_MAKE_A_HEAD: Final = """\
if not head[1] then
  local origin = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  head = {ARGV[1], ARGV[2], tostring(first - 1), origin}
  redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'attempt', ARGV[2], 'last', first - 1,
    'origin', origin)
end
"""


async def _release_unchecked(desk: Any, pen: Any, piece: Any) -> Any:
    if piece is not None:
        await pen.delta(piece.text, piece.ids)
        verdict: Verdict = await desk.checks.check_output(pen.text[-400:], piece.sentence)
        if verdict.flagged:
            return Refusal("output", verdict.category, verdict.text)
    return None


def _one_cache_key() -> None:
    sound = answer._request

    def request(*args: Any) -> GenerateRequest:
        return replace(sound(*args), cache_salt="everybody")

    _put(answer, "_request", request)


def _sent_tokens_forgotten() -> None:
    sound = answer._request

    def request(*args: Any) -> GenerateRequest:
        made = sound(*args)
        return replace(made, prompt=made.prompt[: len(made.prompt) - len(args[0].ids)])

    _put(answer, "_request", request)


def _count_for_oneself() -> None:
    """Each gateway counts the replies that it let in itself."""
    sound, mine = transitions.entrance, set[str]()

    def entrance(turn: Any, known: Turn | None, limits: Limits, door: Any) -> Any:
        running = set(door.spent().running_beside(limits.lane))
        own = len(running & mine)
        allowed = replace(limits, replies_running=limits.replies_running + len(running) - own)
        place = sound(turn, known, allowed, door)
        mine.add(turn.reply_id)
        return place

    _put(postgres_turns, "entrance", entrance)


def _forget_keys() -> None:
    async def find_by_key(self: PostgresTurns, owner: str, key: str) -> Turn | None:
        return None

    _put(postgres_turns._Door, "known", lambda _: None)
    _put(PostgresTurns, "find_by_key", find_by_key)


def _bury_nothing() -> None:
    async def bury(self: ValkeyLog, reply_ids: Sequence[str]) -> None:
        return None

    _put(ValkeyLog, "bury", bury)


def _tell_the_log() -> None:
    """A worker's log says what it is about to look at."""
    sound = RulesChecks.check_output

    async def check_output(self: RulesChecks, before: str, sentence: str) -> Verdict:
        print("looking at", sentence, flush=True)
        return await sound(self, before, sentence)

    _put(RulesChecks, "check_output", check_output)


# A stop's finish takes long: its writer has time to go on where no fence keeps it from that.
_SLOW_STOPS: Final = replace(_NOTHING, baseline_s=5.0, slow_database_s=0.12)
# What a dead worker had shown too early is said again alike, unless its batches fall differently.
_KILL_WORKERS: Final = replace(_NOTHING, worker_kills=12, worker_every_s=0.6)
# Replies last long after it: who comes later must still find their beginning.
_LOSE_LOGS: Final = replace(_NOTHING, valkey_flushes=1, breath_s=5.0)
_COME_BACK: Final = Habits(rate=4.0, reconnects=0.6)
_LOSE_ALL: Final = replace(_NOTHING, lost_with_owner=3)
_KILL_ENGINES: Final = replace(_NOTHING, engine_kills=4)
_STOPS: Final = Habits(rate=8.0, stops=0.6)

MUTANTS: Final[dict[str, Mutant]] = {
    "no fence in append": Mutant(
        _no_fence, ("C4", "C6", "C9", "C15"), _SLOW_STOPS, _STOPS, step_s=0.04
    ),
    "neither fence nor numbers in append": Mutant(
        _no_checks, ("C3", "C4", "C5", "C6", "C9", "C15"), _SLOW_STOPS, _STOPS, step_s=0.04
    ),
    "sent before appended": Mutant(
        _send_before_append, ("C4", "C5"), _KILL_WORKERS, roles="w", only=("F3",)
    ),
    "settled whoever finishes": Mutant(_settle_whoever_finishes, ("C7",)),
    "freed without charge": Mutant(_free_without_charge, ("C8",), habits=_STOPS),
    "stop without a fence": Mutant(
        _stop_without_fence, ("C6", "C9", "C15"), _SLOW_STOPS, _STOPS, roles="g", step_s=0.04
    ),
    "lost log ignored by its heir": Mutant(
        _ignore_loss, ("C4", "C5", "C9"), _LOSE_ALL, only=("F3",)
    ),
    "lost log not written again": Mutant(
        _append_what_is_left, ("C4", "C5", "C12"), _LOSE_LOGS, _COME_BACK, step_s=0.1, only=("F4",)
    ),
    "released before the check": Mutant(
        lambda: _put(speak, "_release", _release_unchecked), ("I10",), roles="w"
    ),
    "cache key without owner": Mutant(_one_cache_key, ("C13",)),
    "sent tokens forgotten": Mutant(_sent_tokens_forgotten, ("C8",), _KILL_ENGINES, only=("F2",)),
    "replies counted by each gateway": Mutant(
        _count_for_oneself, ("C10",), habits=Habits(rate=4.0, bursts=0.3), roles="g"
    ),
    "keys are not unique": Mutant(_forget_keys, ("C2",)),
    "deleted logs stay": Mutant(
        _bury_nothing, ("C16",), habits=Habits(rate=8.0, deletes_running=0.3)
    ),
    "texts in a log": Mutant(_tell_the_log, ("C13",), roles="w"),
}
