"""Whether this gateway lives, whether it can serve, and its figures. Never a text, never a user."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from tertulia.gateway.desk import Desk
from tertulia.gateway.front import AtFront
from tertulia.ports import StoreUnavailable

ops = APIRouter(tags=["operations"])

# A store that takes longer than this to count a table is not one to send people to.
_STORE_S = 2.0


@ops.get("/livez", summary="Is the process alive")
async def livez() -> JSONResponse:
    """Answers as long as the event loop turns; says nothing about what is behind it."""
    return JSONResponse({"status": "alive"})


@ops.get("/readyz", summary="Can turns be taken, and what is missing")
async def readyz(front: AtFront) -> JSONResponse:
    """200 when nothing is missing, else 503 and the list."""
    missing = await _missing(front.desk)
    leaving = front.desk.streams.leaving
    models = [
        {"name": m.name, "served": m.served, "state": m.state} for m in front.desk.replicas.models()
    ]
    status = "draining" if leaving else "waiting" if missing else "ready"
    body = {"status": status, "missing": missing, "models": models}
    return JSONResponse(body, 503 if missing or leaving else 200)


@ops.get("/metrics", summary="Figures for Prometheus")
async def metrics(front: AtFront) -> Response:
    """Counts and times in Prometheus' text form."""
    front.figures.open_streams.set(len(front.desk.streams))
    front.figures.line(front.desk.line)
    front.figures.counted(front.desk.counters)
    return Response(front.figures.page(), media_type="text/plain; version=0.0.4")


async def _missing(desk: Desk) -> list[str]:
    missing = []
    try:
        async with asyncio.timeout(_STORE_S):
            await desk.accounts.count()
    except (StoreUnavailable, TimeoutError):
        missing.append("store")
    if not any(model.state == "ready" for model in desk.replicas.models()):
        missing.append("models")
    return missing
