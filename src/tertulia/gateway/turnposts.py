"""What every call for a reply shares: its key, its refusals and its two ways to answer."""

from __future__ import annotations

import re
from typing import NoReturn

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.quota import MILLI
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
from tertulia.gateway.admit import (
    Answer,
    Ask,
    LineFull,
    NoSuchModel,
    NotPickable,
    TooManyUncharged,
    admit_turn,
)
from tertulia.gateway.caller import Caller
from tertulia.gateway.counting import TooLong
from tertulia.gateway.desk import Desk
from tertulia.gateway.following import new_stream, seat_for
from tertulia.gateway.front import Front
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import (
    Problem,
    invalid,
    key_reused,
    not_found,
    not_pickable,
    restarting,
)

_KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"\Z')
# A reply takes seconds: asking again sooner only finds the same.
_RUNNING_RETRY_S = 5


async def take_turn(front: Front, caller: Caller, ask: Ask) -> Admitted | Repeated:
    """The stored turn, new or known; Problem when it was not taken."""
    if front.desk.streams.leaving:
        raise restarting()
    answer = await admit_turn(front.desk, caller.user, ask)
    front.figures.admitted(answer)
    if isinstance(answer, (Admitted, Repeated)):
        return answer
    refuse(front.desk, answer)


def refuse(desk: Desk, answer: Answer) -> NoReturn:
    """Raises the Problem for an answer of the door that is not a turn."""
    if isinstance(answer, BudgetExhausted):
        raise _exhausted(desk, answer)
    if isinstance(answer, TooManyRunning):
        sentence = f"You have {answer.limit} replies running; wait for one or stop one."
        raise Problem("too_many_running", sentence, retry_after_s=_RUNNING_RETRY_S)
    if isinstance(answer, LineFull):
        sentence = "Many people are waiting; room for you is expected by then."
        raise Problem("busy", sentence, retry_after_s=answer.retry_after_s)
    if isinstance(answer, TooManyUncharged):
        sentence = "Too many messages in a row were refused or answered at once; wait a while."
        raise Problem("too_many_requests", sentence, retry_after_s=answer.retry_after_s)
    if isinstance(answer, Busy):
        raise Problem(
            "conversation_busy",
            "A reply is running on this branch; wait for it or stop it.",
            more={"activeMessageId": answer.reply_id},
        )
    if isinstance(answer, KeyReused):
        raise key_reused()
    if isinstance(answer, TooLong):
        sentence = f"The text has {answer.count} {answer.unit}; {answer.limit} are allowed."
        more = {"limit": answer.limit, "count": answer.count, "unit": answer.unit}
        raise Problem("message_too_long", sentence, field="content", more=more)
    if isinstance(answer, NoSuchModel):
        raise invalid("model", "No model of this name is served here.")
    if isinstance(answer, NotPickable):
        raise not_pickable(answer.names)
    assert isinstance(answer, Missing), answer
    raise not_found()


async def answer_post(request: Request, front: Front, caller: Caller, ask: Ask) -> Response:
    """The reply as a stream when the client accepts one, else 202 and where to follow it."""
    if wants_stream(request):
        async with seat_for(front.desk, caller) as seat:
            taken = await take_turn(front, caller, ask)
            headers = {"Location": stream_url(taken.turn)}
            return new_stream(front, caller, taken, seat, headers=headers)
    taken = await take_turn(front, caller, ask)
    turn = taken.turn
    # A new one counts as followed from its admission: no write is needed to say so.
    if isinstance(taken, Repeated) and not turn.status.is_final:
        await front.desk.presence.seen([(turn.owner, turn.reply_id)])
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
    limit, remaining = answer.limit // MILLI, answer.remaining // MILLI
    needed = -(-answer.needed // MILLI)
    unit = answer.unit.replace("_", " ")
    more = {
        "budget": answer.budget,
        "unit": answer.unit,
        "limit": limit,
        "remaining": remaining,
        "needed": needed,
        "resetAt": None if answer.resets_at is None else rfc3339(answer.resets_at),
    }
    if answer.resets_at is None:
        sentence = (
            f"This needs {needed} {unit}, and the whole budget {answer.budget} is {limit}: "
            "ask with less text, or in a new conversation."
        )
        return Problem("budget_exhausted", sentence, more=more)
    sentence = (
        f"The budget {answer.budget} has {remaining} of {limit} {unit} left and this needs "
        f"{needed}; there is room for it at {rfc3339(answer.resets_at)}."
    )
    retry_after_s = answer.resets_at - desk.clock.now()
    return Problem("budget_exhausted", sentence, retry_after_s=retry_after_s, more=more)
