"""Fetches a model file from a public hub over HTTPS, going on where an earlier try stopped.

It must never decide that a file is good: the caller compares the SHA-256.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import httpx2

from tertulia.replica.catalogue import HubFile

HUB_ADDRESS = "https://huggingface.co"
TRIES = 4  # in a row that bring next to nothing; each goes on at the byte where the last one ended
STRIDES = 100  # a try that brings a hundredth of the file has been worth it: the tries begin anew
READ_S = 30.0  # no byte for so long means that the connection is dead

_WORD = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_ADDRESS = re.compile(rf"hf:({_WORD}/{_WORD})/((?:{_WORD}/)*{_WORD}\.gguf)(?:@({_WORD}))?")


class HubUnavailable(RuntimeError):
    """The hub could not be reached, or does not have the file."""


def hub_file(address: str) -> HubFile:
    """The file that `hf:OWNER/REPO/FILE.gguf@REVISION` names; ValueError if it names none."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{address!r} is not of the form hf:OWNER/REPO/FILE.gguf@REVISION")
    return HubFile(found[1], found[2], found[3] or "main")


def url_of(hub: HubFile, address: str | None = None) -> str:
    """Where the file is fetched."""
    base = address or os.environ.get("TERTULIA_HUB_ADDRESS") or HUB_ADDRESS
    return f"{base.rstrip('/')}/{hub.repo}/resolve/{hub.revision}/{hub.file}"


def size_of(hub: HubFile, address: str | None = None) -> int:
    """The file's bytes as the hub tells them, before anything is fetched."""
    url = url_of(hub, address)
    try:
        with _client() as client:
            response = client.head(url)
            _refuse_missing(url, response)
            response.raise_for_status()
    except httpx2.HTTPError as error:
        raise HubUnavailable(f"{url} could not be asked: {_reason(error)}") from error
    told = response.headers.get("Content-Length", "")
    if not re.fullmatch(r"\d{1,15}", told) or int(told) == 0:
        raise HubUnavailable(f"{url} does not tell its length")
    return int(told)


def fetch_file(
    hub: HubFile,
    target: Path,
    bytes_total: int,
    report: Callable[[int, int], None],
    address: str | None = None,
) -> None:
    """Makes `target` complete; a shorter file there is continued with a Range request."""
    url = url_of(hub, address)
    failure = "nothing was received"
    tries, counted_from = TRIES, _bytes_in(target)
    with _client() as client:
        while tries:
            tries -= 1
            try:
                _continue(client, url, target, bytes_total, report)
            except httpx2.HTTPError as error:
                failure = _reason(error)
            have = _bytes_in(target)
            if have == bytes_total:
                return
            if have - counted_from >= max(1, bytes_total // STRIDES):
                tries, counted_from = TRIES, have
                failure = f"it ended after {have} of {bytes_total} bytes"
    raise HubUnavailable(f"{url} could not be downloaded: {failure}")


def _continue(
    client: httpx2.Client,
    url: str,
    target: Path,
    bytes_total: int,
    report: Callable[[int, int], None],
) -> None:
    have = _bytes_in(target)
    if have > bytes_total:
        target.unlink()
        have = 0
    if have == bytes_total:
        return
    headers = {"Range": f"bytes={have}-"} if have else {}
    with client.stream("GET", url, headers=headers) as response:
        _refuse_missing(url, response)
        response.raise_for_status()
        if not _goes_on_at(have, response):
            have = 0  # the server ignored the range: begin again
        with target.open("ab" if have else "wb") as sink:
            for chunk in response.iter_bytes():
                have += len(chunk)
                if have > bytes_total:
                    raise HubUnavailable(f"{url} is longer than the {bytes_total} bytes expected")
                sink.write(chunk)
                report(have, bytes_total)


def _client() -> httpx2.Client:
    # Compressed on the way, the bytes of a range would not be those of the file.
    headers = {"Accept-Encoding": "identity"}
    return httpx2.Client(timeout=httpx2.Timeout(READ_S), follow_redirects=True, headers=headers)


def _refuse_missing(url: str, response: httpx2.Response) -> None:
    if response.status_code in (401, 403, 404, 410):
        what = "it is not there, or not for everybody"
        raise HubUnavailable(f"{url} answered {response.status_code}: {what}")


def _goes_on_at(have: int, response: httpx2.Response) -> bool:
    told = response.headers.get("Content-Range", f"bytes {have}-")
    return response.status_code == 206 and told.startswith(f"bytes {have}-")


def _bytes_in(target: Path) -> int:
    return target.stat().st_size if target.exists() else 0


def _reason(error: httpx2.HTTPError) -> str:
    return f"{type(error).__name__}: {error}"
