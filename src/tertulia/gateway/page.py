"""Serves the built page from memory. A path is looked up in a table: no file can be tricked out."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tertulia.gateway.problems import not_found, problem_response

BUILT_PAGE: Final = Path(__file__).parent / "pages"

# The page knows its own routes; these are the only ones that give it.
_PAGE_PATHS = re.compile(r"/([cs]/[A-Za-z0-9_\-]{1,100}|operations)?\Z")
# What somebody shared by a link: nobody on the way keeps it, and no search engine lists it.
_SHARED = re.compile(r"/s/")
_SHARED_HEADERS: Final = {"Cache-Control": "private, no-store", "X-Robots-Tag": "noindex"}
# File names of assets carry a hash of their content.
_FOREVER = "public, max-age=31536000, immutable"
_FILE_BYTES = 5_000_000
_FILES = 500


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, ready to send both ways."""

    plain: bytes
    packed: bytes
    media_type: str
    etag: str
    cache: str


class BuiltPage:
    """An ASGI app over the files that were there when the process began."""

    def __init__(self, folder: Path = BUILT_PAGE):
        self._assets = _load(folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        path = scope["path"]
        name = "/index.html" if _PAGE_PATHS.match(path) else path
        asset = self._assets.get(name)
        if asset is None or scope["method"] not in ("GET", "HEAD"):
            return problem_response(not_found(), path)
        headers = dict(scope["headers"])
        shown = {"Cache-Control": asset.cache, "ETag": asset.etag, "Vary": "Accept-Encoding"}
        if _SHARED.match(path):
            shown |= _SHARED_HEADERS
        if headers.get(b"if-none-match") == asset.etag.encode():
            return Response(status_code=304, headers=shown)
        if b"gzip" in headers.get(b"accept-encoding", b""):
            packed = {**shown, "Content-Encoding": "gzip"}
            return Response(asset.packed, headers=packed, media_type=asset.media_type)
        return Response(asset.plain, headers=shown, media_type=asset.media_type)


def _load(folder: Path) -> dict[str, Asset]:
    """Every plain file below `folder` by its URL path; links are not followed."""
    assets = {}
    for path in sorted(folder.rglob("*"))[:_FILES] if folder.is_dir() else ():
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_symlink() or hidden or not path.is_file():
            continue
        if path.suffix in (".py", ".pyc") or path.stat().st_size > _FILE_BYTES:
            continue
        name = "/" + path.relative_to(folder).as_posix()
        assets[name] = _asset(name, path.read_bytes())
    return assets


def _asset(name: str, plain: bytes) -> Asset:
    guessed, _ = mimetypes.guess_type(name)
    media_type = guessed or "application/octet-stream"
    if media_type.endswith("javascript"):
        media_type = "text/javascript"
    return Asset(
        plain=plain,
        packed=gzip.compress(plain, 6, mtime=0),
        media_type=media_type,
        etag=f'"{hashlib.sha256(plain).hexdigest()[:32]}"',
        cache=_FOREVER if name.startswith("/assets/") else "no-cache",
    )
