"""What every call for a reply shares: its key, its refusals and its two ways to answer."""

from __future__ import annotations

import re
from typing import NoReturn

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.types import (
    Admitted,
    BudgetExhausted,
    Busy,
    KeyReused,
    Missing,
    Repeated,
    TooManyRunning,
    Turn,
)
from tertulia.gateway.admit import Answer, Ask, NoSuchModel, TooLong, admit_turn
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.following import demand_room, new_stream
from tertulia.gateway.front import Front
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, invalid, not_found

_KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"\Z')
# A reply takes seconds: asking again sooner only finds the same.
_RUNNING_RETRY_S = 5


async def take_turn(front: Front, caller: Caller, ask: Ask) -> Turn:
    """The stored turn, new or known; Problem when it was not taken."""
    if front.desk.streams.draining:
        raise Problem("draining", "This gateway is restarting; try again.", retry_after_s=2)
    answer = await admit_turn(front.desk, caller.user, ask)
    front.figures.admitted(answer)
    if isinstance(answer, (Admitted, Repeated)):
        return answer.turn
    refuse(front.desk, answer)


def refuse(desk: Desk, answer: Answer) -> NoReturn:
    """Raises the Problem for an answer of the door that is not a turn."""
    if isinstance(answer, BudgetExhausted):
        raise _exhausted(desk, answer)
    if isinstance(answer, TooManyRunning):
        sentence = f"You have {answer.limit} replies running; wait for one or stop one."
        raise Problem("too_many_running", sentence, retry_after_s=_RUNNING_RETRY_S)
    if isinstance(answer, Busy):
        raise Problem(
            "conversation_busy",
            "A reply is running on this branch; wait for it or stop it.",
            more={"activeMessageId": answer.reply_id},
        )
    if isinstance(answer, KeyReused):
        sentence = "This Idempotency-Key was used for a different request."
        raise Problem("idempotency_key_reuse", sentence, field="Idempotency-Key")
    if isinstance(answer, TooLong):
        sentence = f"The text has {answer.count} {answer.unit}; {answer.limit} are allowed."
        more = {"limit": answer.limit, "count": answer.count, "unit": answer.unit}
        raise Problem("message_too_long", sentence, field="content", more=more)
    if isinstance(answer, NoSuchModel):
        raise invalid("model", "No model of this name is served here.")
    assert isinstance(answer, Missing), answer
    raise not_found()


async def answer_post(request: Request, front: Front, caller: Caller, ask: Ask) -> Response:
    """The reply as a stream when the client accepts one, else 202 and where to follow it."""
    if wants_stream(request):
        demand_room(front.desk, caller)
        turn = await take_turn(front, caller, ask)
        return new_stream(front, caller, turn, headers={"Location": stream_url(turn)})
    turn = await take_turn(front, caller, ask)
    if not turn.status.is_final:
        await front.desk.presence.seen([turn.reply_id])
    return JSONResponse(
        {
            "messageId": turn.reply_id,
            "userMessageId": turn.user_message_id,
            "conversationId": turn.conversation_id,
            "status": turn.status,
            "streamUrl": stream_url(turn),
        },
        202,
        {"Location": stream_url(turn)},
    )


def stream_url(turn: Turn) -> str:
    """Where any client of this user follows the reply."""
    return f"/v1/messages/{turn.reply_id}/stream"


def wants_stream(request: Request) -> bool:
    """Whether the client named the event stream among what it accepts."""
    return "text/event-stream" in request.headers.get("accept", "").lower()


def idempotency_key(request: Request) -> str | None:
    """The key, sent bare or as a quoted string; None when the header is absent."""
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    given = given.strip()
    quoted = _QUOTED.match(given)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else given
    if not _KEY.match(key):
        sentence = "The Idempotency-Key must be 1 to 255 visible characters."
        raise invalid("Idempotency-Key", sentence)
    return key


def demand_key(request: Request) -> str:
    """The key of a call that can't do without: a retry must find the turn that it began."""
    key = idempotency_key(request)
    if key is None:
        raise invalid("Idempotency-Key", "Send an Idempotency-Key header of your own making.")
    return key


def _exhausted(desk: Desk, answer: BudgetExhausted) -> Problem:
    sentence = (
        f"The budget {answer.budget} has {answer.remaining} of {answer.limit} left and this "
        f"needs {answer.needed}; it resets at {rfc3339(answer.resets_at)}."
    )
    return Problem(
        "budget_exhausted",
        sentence,
        retry_after_s=answer.resets_at - desk.clock.now(),
        more={
            "budget": answer.budget,
            "limit": answer.limit,
            "remaining": answer.remaining,
            "needed": answer.needed,
            "resetAt": rfc3339(answer.resets_at),
        },
    )
