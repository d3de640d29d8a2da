"""Between rows and values: what each column means, in both directions, for every database.

It touches none of them. Lists are JSON here; a database with arrays keeps `notices` in one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from tertulia.core.quota import Settlement
from tertulia.core.search import SIGNATURE_WORDS, folded, signature, words_of
from tertulia.core.turn import pack_ids, thread_of, unpack_ids
from tertulia.core.types import (
    Balance,
    Branch,
    BranchMessage,
    Budget,
    Conversation,
    DayUse,
    Failure,
    Finish,
    Holding,
    Lane,
    Message,
    PromptMessage,
    Reason,
    Refusal,
    Sampling,
    Status,
    Turn,
    Usage,
    Version,
)
from tertulia.core.waiting import Claimable

_BITS: Final = tuple(f"bits_{n}" for n in range(SIGNATURE_WORDS))
# Made once: `json.dumps` with arguments makes an encoder at each call.
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


class Row(Protocol):
    """A row of any driver: its columns by name."""

    def __getitem__(self, column: str, /) -> Any: ...


def turn_of(row: Row) -> Turn:
    """A row of the view `whole_turns`."""
    return Turn(
        owner=row["owner"],
        key=row["key"],
        body_sha=row["body_sha"],
        kind=row["kind"],
        reply_id=row["reply_id"],
        plan=row["plan"],
        lane=Lane(row["lane"]),
        requested=row["requested"],
        answer_tokens=row["answer_tokens"],
        reserved=row["reserved"],
        sampling=_sampling(row["sampling"]),
        status=Status(row["status"]),
        epoch=row["epoch"],
        attempt=row["attempt"],
        created_at=row["created_at"],
        budgets=budgets_of(row["budgets"]),
        abandon_s=row["abandon_s"],
        conversation_id=row["conversation_id"],
        user_message_id=row["user_message_id"],
        prompt=_prompt(row["prompt"]),
        notices=_words(row["notices"]),
        lease_until=row["lease_until"],
        followed_at=row["followed_at"],
        model=row["model"],
        reason=Reason(row["reason"]) if row["reason"] is not None else None,
        replica=row["replica"],
        request_id=row["request_id"],
        prompt_tokens=row["prompt_tokens"],
        summary_id=row["summary_id"],
        difficulty=row["difficulty"],
        awaited=row["awaited"],
        finished_at=row["finished_at"],
        finish=Finish(row["finish"]) if row["finish"] is not None else None,
        text=row["reply_text"],
        usage=Usage(row["input_tokens"], row["cached_tokens"], row["output_tokens"]),
        charged=row["charged"],
        refusal=Refusal(**json.loads(row["refusal"])) if row["refusal"] is not None else None,
        failure=failure_of(row["failure"]),
        last_event_id=row["last_event_id"],
        stop_reason=row["stop_reason"],
    )


def turn_values(turn: Turn, parent_id: str | None) -> dict[str, Any]:
    """The columns of `turns`. A reply in a conversation keeps its text in its message alone."""
    return {
        "owner": turn.owner,
        "reply_id": turn.reply_id,
        "key": turn.key,
        "body_sha": turn.body_sha,
        "kind": turn.kind,
        "plan": turn.plan,
        "lane": turn.lane.value,
        "requested": turn.requested,
        "answer_tokens": turn.answer_tokens,
        "reserved": turn.reserved,
        "sampling": _USUALLY if turn.sampling == _USUAL else _sampling_json(turn.sampling),
        "status": turn.status.value,
        "epoch": turn.epoch,
        "attempt": turn.attempt,
        "created_at": turn.created_at,
        "budgets": budgets_json(turn.budgets),
        "abandon_s": turn.abandon_s,
        "conversation_id": turn.conversation_id,
        "thread": thread_of(turn) if turn.conversation_id is None else None,
        "user_message_id": turn.user_message_id,
        "parent_id": parent_id,
        "prompt": _prompt_json(turn.prompt) if turn.prompt else "[]",
        "notices": notices_json(turn.notices),
        "lease_until": turn.lease_until,
        "followed_at": turn.followed_at,
        "model": turn.model,
        "reason": turn.reason.value if turn.reason is not None else None,
        "replica": turn.replica,
        "request_id": turn.request_id,
        "prompt_tokens": turn.prompt_tokens,
        "summary_id": turn.summary_id,
        "difficulty": turn.difficulty,
        "awaited": turn.awaited,
        "finished_at": turn.finished_at,
        "finish": turn.finish.value if turn.finish is not None else None,
        "text": turn.text if turn.conversation_id is None else "",
        "input_tokens": turn.usage.input,
        "cached_tokens": turn.usage.cached,
        "output_tokens": turn.usage.output,
        "charged": turn.charged,
        "refusal": refusal_json(turn.refusal),
        "failure": failure_json(turn.failure),
        "last_event_id": turn.last_event_id,
        "stop_reason": turn.stop_reason,
    }


def day_use_of(row: Row) -> DayUse:
    """What was used of one model on one day."""
    usage = Usage(row["input_tokens"], row["cached_tokens"], row["output_tokens"])
    return DayUse(row["day"], row["model"], row["replies"], usage, row["charged"])


def holding_of(row: Row) -> Holding:
    """An open turn's claim on its owner's budgets: reply id, lane, reservation and budgets."""
    answer = row["answer_tokens"]
    return Holding(
        reply_id=row["reply_id"],
        lane=Lane(row["lane"]),
        worst_case=Usage(input=row["reserved"] - answer, output=answer),
        budgets=tuple(budget.name for budget in budgets_of(row["budgets"])),
    )


def settlement_of(row: Row) -> Settlement:
    """A row of `settlements`, as far as balances follow from it."""
    usage = Usage(row["input_tokens"], row["cached_tokens"], row["output_tokens"])
    return Settlement(budgets_of(row["budgets"]), usage, row["settled_ms"])


def balances_of(rows: Iterable[Row]) -> dict[str, Balance]:
    """An owner's rows of `balances`, by budget."""
    return {
        row["budget"]: Balance(row["used"], row["at_ms"], row["size"], row["refill_ms"])
        for row in rows
    }


def balance_values(owner: str, budget: str, balance: Balance) -> dict[str, Any]:
    """The columns of `balances`."""
    return {
        "owner": owner,
        "budget": budget,
        "used": balance.used,
        "at_ms": balance.at_ms,
        "size": balance.limit,
        "refill_ms": balance.refill_ms,
    }


# There are a few plans, and each of their turns has the same text.
@lru_cache(maxsize=64)
def budgets_of(text: str | None) -> tuple[Budget, ...]:
    """The budgets of an open turn or a settlement."""
    return tuple(Budget(*budget) for budget in json.loads(text)) if text else ()


@lru_cache(maxsize=64)
def budgets_json(budgets: tuple[Budget, ...]) -> str:
    """Budgets as one column: name, unit, limit and refill of each, in this order."""
    return json.dumps([[b.name, b.unit, b.limit, b.refill_ms] for b in budgets])


# Notices are words of ours, and few.
@lru_cache(maxsize=256)
def notices_json(notices: tuple[str, ...]) -> str:
    """Notices as one column."""
    return json.dumps(notices)


def message_of(row: Row) -> Message:
    """A row of `messages`."""
    return Message(
        owner=row["owner"],
        conversation_id=row["conversation_id"],
        id=row["id"],
        parent_id=row["parent_id"],
        seq=row["seq"],
        role=row["role"],
        content=row["content"],
        tokens=row["tokens"],
        tokenizer=row["tokenizer"],
        status=Status(row["status"]),
        created_at=row["created_at"],
        model=row["model"],
        requested=row["requested"],
        reason=Reason(row["reason"]) if row["reason"] is not None else None,
        finish=Finish(row["finish"]) if row["finish"] is not None else None,
        notices=_words(row["notices"]),
        failure=failure_of(row["failure"]),
        feedback=row["feedback"],
        last_event_id=row["last_event_id"],
        ids=unpack_ids(row["ids"]) if row["ids"] is not None else None,
    )


def page_message_of(row: Row) -> Message:
    """A row of the view `page_messages`."""
    version = Version(row["version"], row["versions"], row["previous"], row["following"])
    return message_of(row)._replace(version=version)


def message_values(message: Message, *, shown: int = 0) -> dict[str, Any]:
    """The columns of `messages`; `shown` is the move by which it became its conversation's head."""
    return {
        "owner": message.owner,
        "conversation_id": message.conversation_id,
        "seq": message.seq,
        "id": message.id,
        "parent_id": message.parent_id,
        "shown": shown,
        "role": message.role,
        "content": message.content,
        "tokens": message.tokens,
        "tokenizer": message.tokenizer,
        "status": message.status.value,
        "created_at": message.created_at,
        "model": message.model,
        "requested": message.requested,
        "reason": message.reason.value if message.reason is not None else None,
        "finish": message.finish.value if message.finish is not None else None,
        "notices": notices_json(message.notices),
        "failure": failure_json(message.failure),
        "feedback": message.feedback,
        "last_event_id": message.last_event_id,
        "ids": pack_ids(message.ids) if message.ids is not None else None,
        **signature_values(message.content),
    }


def signature_values(text: str) -> dict[str, int]:
    """A text's signature, or a word's, as the columns `bits_0`, `bits_1` ... of `messages`."""
    return dict(zip(_BITS, words_of(signature(folded(text))), strict=True))


def prompt_message_of(row: Row) -> PromptMessage:
    """The part of a message that a prompt needs."""
    if row["ids"] is None:
        return PromptMessage(row["role"], row["content"])
    return PromptMessage(row["role"], row["content"], unpack_ids(row["ids"]), row["tokenizer"])


def branch_of(row: Row) -> Branch:
    """A conversation's `prompt_version`, `instructions`, `model` and `titled_by`, with a `leaf`,
    what a user `said` there, and the `path` to it: JSON with id, role, status, tokens and tokenizer
    of each message."""
    return Branch(
        row["prompt_version"],
        row["model"],
        row["leaf"],
        tuple(
            BranchMessage(message_id, role, Status(status), tokens, tokenizer)
            for message_id, role, status, tokens, tokenizer in json.loads(row["path"] or "[]")
        ),
        row["said"],
        row["instructions"],
        row["titled_by"],
    )


def conversation_of(row: Row) -> Conversation:
    """A row of `conversations` with its reply in progress as `active`."""
    return Conversation(
        owner=row["owner"],
        id=row["id"],
        title=row["title"],
        prompt_version=row["prompt_version"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        pinned=bool(row["pinned"]),
        archived=bool(row["archived"]),
        model=row["model"],
        head_message_id=row["head_message_id"],
        active_message_id=row["active"],
        instructions=row["instructions"],
        titled_by=row["titled_by"],
    )


def refusal_json(refusal: Refusal | None) -> str | None:
    """A refusal as one column."""
    if refusal is None:
        return None
    return json.dumps({"stage": refusal.stage, "category": refusal.category, "text": refusal.text})


def failure_json(failure: Failure | None) -> str | None:
    """A failure as one column."""
    if failure is None:
        return None
    return json.dumps(
        [failure.code, failure.message, failure.retryable, failure.retry_after_s],
        ensure_ascii=False,
    )


def json_list(words: Sequence[str]) -> str:
    """Words as one parameter, for `json_each`."""
    return json.dumps(list(words))


def full_names(may: Claimable | None) -> list[str]:
    """The models that are full, each with the lane for which it is, as the claim compares them."""
    return [f"{lane.value} {name}" for lane, name in may.full] if may is not None else []


def _words(stored: str | list[str]) -> tuple[str, ...]:
    return tuple(json.loads(stored) if isinstance(stored, str) else stored)


def _sampling(text: str) -> Sampling:
    if text == _USUALLY:
        return _USUAL
    temperature, top_p, seed, stop = json.loads(text)
    return Sampling(temperature, top_p, seed, tuple(stop))


def _sampling_json(sampling: Sampling) -> str:
    return json.dumps([sampling.temperature, sampling.top_p, sampling.seed, sampling.stop])


# Nearly all turns have this one. Others are not kept: stop strings are somebody's words.
_USUAL: Final = Sampling()
_USUALLY: Final = _sampling_json(_USUAL)


def _prompt_json(prompt: Sequence[PromptMessage]) -> str:
    return _encode([[m.role, m.content, m.ids, m.tokenizer] for m in prompt])


def _prompt(text: str) -> tuple[PromptMessage, ...]:
    return tuple(
        PromptMessage(role, content, tuple(ids) if ids is not None else None, tokenizer)
        for role, content, ids, tokenizer in json.loads(text)
    )


def failure_of(text: str | None) -> Failure | None:
    return Failure(*json.loads(text)) if text is not None else None
