"""Fetches a model file from a public hub over HTTPS, going on where an earlier try stopped.

It must never decide that a file is good: the caller compares the SHA-256.
"""

import os
from collections.abc import Callable
from pathlib import Path

import httpx2

from tertulia.replica.catalogue import HubFile

HUB_ADDRESS = "https://huggingface.co"
TRIES = 4  # each goes on at the byte where the last one ended
READ_S = 30.0  # no byte for so long means that the connection is dead


class HubUnavailable(RuntimeError):
    """The hub could not be reached, or does not have the file."""


def fetch_file(
    hub: HubFile,
    target: Path,
    bytes_total: int,
    report: Callable[[int, int], None],
    address: str | None = None,
) -> None:
    """Makes `target` complete; a shorter file there is continued with a Range request."""
    base = address or os.environ.get("TERTULIA_HUB_ADDRESS") or HUB_ADDRESS
    url = f"{base.rstrip('/')}/{hub.repo}/resolve/{hub.revision}/{hub.file}"
    timeout = httpx2.Timeout(READ_S)
    failure = "nothing was received"
    with httpx2.Client(timeout=timeout, follow_redirects=True) as client:
        for _ in range(TRIES):
            try:
                _continue(client, url, target, bytes_total, report)
            except httpx2.HTTPError as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            if target.stat().st_size == bytes_total:
                return
            failure = f"it ended after {target.stat().st_size} of {bytes_total} bytes"
    raise HubUnavailable(f"{url} could not be downloaded: {failure}")


def _continue(
    client: httpx2.Client,
    url: str,
    target: Path,
    bytes_total: int,
    report: Callable[[int, int], None],
) -> None:
    have = target.stat().st_size if target.exists() else 0
    if have > bytes_total:
        target.unlink()
        have = 0
    if have == bytes_total:
        return
    headers = {"Range": f"bytes={have}-"} if have else {}
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code in (401, 403, 404, 410):
            raise HubUnavailable(f"{url} answered {response.status_code}")
        response.raise_for_status()
        if response.status_code != 206:
            have = 0  # the server ignored the range: begin again
        with target.open("ab" if have else "wb") as sink:
            for chunk in response.iter_bytes():
                have += len(chunk)
                if have > bytes_total:
                    raise HubUnavailable(f"{url} is longer than the {bytes_total} bytes expected")
                sink.write(chunk)
                report(have, bytes_total)
