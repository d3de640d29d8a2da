"""Fetches a page of metrics: never more than one can be, never for longer than a moment."""

from __future__ import annotations

from typing import Final

import httpx2

ANSWER_S: Final = 10.0
MOST_BYTES: Final = 8 << 20


class NoPage(Exception):
    """There is none, or none that can be read. The text is one sentence."""


def page_of(client: httpx2.Client, url: str, key: str | None = None) -> str:
    """The text at `/metrics`, for which a replica may want a key."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    page = bytearray()
    try:
        address = f"{url.rstrip('/')}/metrics"
        with client.stream("GET", address, headers=headers, timeout=ANSWER_S) as answer:
            answer.raise_for_status()
            for part in answer.iter_bytes():
                page += part
                if len(page) > MOST_BYTES:
                    raise NoPage(f"The metrics at {url} are larger than {MOST_BYTES >> 20} MB.")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise NoPage(f"{url} does not show its metrics: {why.splitlines()[0]}.") from error
    return page.decode("utf-8", "replace")
