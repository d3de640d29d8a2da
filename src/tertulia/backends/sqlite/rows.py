"""Between rows and values: what each column means, in both directions. It touches no database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from tertulia.core.quota import lane_of
from tertulia.core.turn import pack_ids, unpack_ids
from tertulia.core.types import (
    ApiKey,
    BranchMessage,
    Conversation,
    Failure,
    Finish,
    Message,
    PromptMessage,
    Reason,
    Refusal,
    Sampling,
    Status,
    Turn,
    Usage,
    User,
)

Row = sqlite3.Row


def turn_of(row: Row) -> Turn:
    """A row of the view `whole_turns`."""
    return Turn(
        owner=row["owner"],
        key=row["key"],
        body_sha=row["body_sha"],
        kind=row["kind"],
        reply_id=row["reply_id"],
        plan=row["plan"],
        requested=row["requested"],
        answer_tokens=row["answer_tokens"],
        reserved=row["reserved"],
        sampling=_sampling(row["sampling"]),
        status=Status(row["status"]),
        epoch=row["epoch"],
        attempt=row["attempt"],
        created_at=row["created_at"],
        conversation_id=row["conversation_id"],
        user_message_id=row["user_message_id"],
        prompt=_prompt(row["prompt"]),
        notices=tuple(json.loads(row["notices"])),
        lease_until=row["lease_until"],
        followed_at=row["followed_at"],
        model=row["model"],
        reason=Reason(row["reason"]) if row["reason"] is not None else None,
        replica=row["replica"],
        request_id=row["request_id"],
        prompt_tokens=row["prompt_tokens"],
        finished_at=row["finished_at"],
        finish=Finish(row["finish"]) if row["finish"] is not None else None,
        text=row["reply_text"],
        usage=Usage(row["input_tokens"], row["cached_tokens"], row["output_tokens"]),
        charged=row["charged"],
        refusal=Refusal(**json.loads(row["refusal"])) if row["refusal"] is not None else None,
        failure=_failure(row["failure"]),
        last_event_id=row["last_event_id"],
        stop_reason=row["stop_reason"],
    )


def turn_values(turn: Turn, parent_id: str | None) -> dict[str, Any]:
    """The columns of `turns`. A reply in a conversation keeps its text in its message alone."""
    refusal, failure = turn.refusal, turn.failure
    return {
        "owner": turn.owner,
        "reply_id": turn.reply_id,
        "key": turn.key,
        "body_sha": turn.body_sha,
        "kind": turn.kind,
        "plan": turn.plan,
        "lane": lane_of(turn.plan),
        "requested": turn.requested,
        "answer_tokens": turn.answer_tokens,
        "reserved": turn.reserved,
        "sampling": json.dumps(
            [
                turn.sampling.temperature,
                turn.sampling.top_p,
                turn.sampling.seed,
                turn.sampling.stop,
            ]
        ),
        "status": turn.status.value,
        "epoch": turn.epoch,
        "attempt": turn.attempt,
        "created_at": turn.created_at,
        "conversation_id": turn.conversation_id,
        "user_message_id": turn.user_message_id,
        "parent_id": parent_id,
        "prompt": json.dumps(
            [[m.role, m.content, m.ids, m.tokenizer] for m in turn.prompt], ensure_ascii=False
        ),
        "notices": json.dumps(turn.notices),
        "lease_until": turn.lease_until,
        "followed_at": turn.followed_at,
        "model": turn.model,
        "reason": turn.reason.value if turn.reason is not None else None,
        "replica": turn.replica,
        "request_id": turn.request_id,
        "prompt_tokens": turn.prompt_tokens,
        "finished_at": turn.finished_at,
        "finish": turn.finish.value if turn.finish is not None else None,
        "text": turn.text if turn.conversation_id is None else "",
        "input_tokens": turn.usage.input,
        "cached_tokens": turn.usage.cached,
        "output_tokens": turn.usage.output,
        "charged": turn.charged,
        "refusal": json.dumps(
            {"stage": refusal.stage, "category": refusal.category, "text": refusal.text}
        )
        if refusal is not None
        else None,
        "failure": _failure_json(failure),
        "last_event_id": turn.last_event_id,
        "stop_reason": turn.stop_reason,
    }


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
        notices=tuple(json.loads(row["notices"])),
        failure=_failure(row["failure"]),
        feedback=row["feedback"],
        last_event_id=row["last_event_id"],
        ids=unpack_ids(row["ids"]) if row["ids"] is not None else None,
    )


def message_values(message: Message) -> dict[str, Any]:
    """The columns of `messages`."""
    return {
        "owner": message.owner,
        "conversation_id": message.conversation_id,
        "seq": message.seq,
        "id": message.id,
        "parent_id": message.parent_id,
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
        "notices": json.dumps(message.notices),
        "failure": _failure_json(message.failure),
        "feedback": message.feedback,
        "last_event_id": message.last_event_id,
        "ids": pack_ids(message.ids) if message.ids is not None else None,
    }


def prompt_message_of(row: Row) -> PromptMessage:
    """The part of a message that a prompt needs."""
    if row["ids"] is None:
        return PromptMessage(row["role"], row["content"])
    return PromptMessage(row["role"], row["content"], unpack_ids(row["ids"]), row["tokenizer"])


def branch_message_of(row: Row) -> BranchMessage:
    """The part of a message that decides what enters a prompt."""
    return BranchMessage(
        row["id"], row["role"], Status(row["status"]), row["tokens"], row["tokenizer"]
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
    )


def user_of(row: Row) -> User:
    """A row of `users`."""
    return User(
        id=row["id"],
        name=row["name"],
        role=row["role"],
        plan=row["plan"],
        password_hash=row["password_hash"],
        created_at=row["created_at"],
        disabled=bool(row["disabled"]),
    )


def user_values(user: User) -> dict[str, Any]:
    """The columns of `users`."""
    return {
        "id": user.id,
        "name": user.name,
        "name_key": user.name.casefold(),
        "role": user.role,
        "plan": user.plan,
        "password_hash": user.password_hash,
        "created_at": user.created_at,
        "disabled": int(user.disabled),
    }


def api_key_of(row: Row) -> ApiKey:
    """A row of `api_keys`."""
    return ApiKey(
        id=row["id"],
        owner=row["owner"],
        name=row["name"],
        prefix=row["prefix"],
        secret_hash=row["secret_hash"],
        created_at=row["created_at"],
        last_used_at=row["last_used_at"],
    )


def json_list(words: Sequence[str]) -> str:
    """Words as one parameter, for `json_each`."""
    return json.dumps(list(words))


def _sampling(text: str) -> Sampling:
    temperature, top_p, seed, stop = json.loads(text)
    return Sampling(temperature, top_p, seed, tuple(stop))


def _prompt(text: str) -> tuple[PromptMessage, ...]:
    return tuple(
        PromptMessage(role, content, tuple(ids) if ids is not None else None, tokenizer)
        for role, content, ids, tokenizer in json.loads(text)
    )


def _failure(text: str | None) -> Failure | None:
    return Failure(*json.loads(text)) if text is not None else None


def _failure_json(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    return json.dumps(
        [failure.code, failure.message, failure.retryable, failure.retry_after_s],
        ensure_ascii=False,
    )
