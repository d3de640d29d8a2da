"""The built page: served from memory, with no way to any other file."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tertulia.gateway.page import BUILT_PAGE, BuiltPage
from tests.lanes.gateway_rig import rig

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pages = tmp_path / "pages"
    (pages / "assets").mkdir(parents=True)
    (pages / "index.html").write_text("<!doctype html><title>Page</title>")
    (pages / "assets" / "app-1a2b.js").write_text("export const x = 1;")
    (pages / ".env").write_text("SECRET")
    (pages / "__init__.py").write_text("SECRET")
    (tmp_path / "secret.txt").write_text("SECRET")
    (pages / "link.txt").symlink_to(tmp_path / "secret.txt")
    return pages


_NO_PAGE = ("/c/", "/c/a/b", "/login", "/c/..%2f", "/v1", "/operations/", "/operations/x")


async def test_the_page_and_its_conversations_give_the_index_and_nothing_else_does(
    folder: Path,
) -> None:
    async with rig(page=BuiltPage(folder)) as here:
        client = here.client()
        shown = [await client.get(path) for path in ("/", "/c/c_01", "/operations", "/index.html")]
        hidden = [await client.get(path) for path in _NO_PAGE]
        api = await client.get("/v1/nothing")
        written = await client.post("/", json={})
    assert {(a.status_code, a.text) for a in shown} == {(200, "<!doctype html><title>Page</title>")}
    assert all(a.headers["cache-control"] == "no-cache" for a in shown)
    assert all(a.headers["content-type"].startswith("text/html") for a in shown)
    assert {a.status_code for a in [*hidden, api, written]} == {404}
    assert {a.json()["code"] for a in [*hidden, api, written]} == {"not_found"}


async def test_assets_are_kept_for_ever_and_known_again(folder: Path) -> None:
    async with rig(page=BuiltPage(folder)) as here:
        client = here.client()
        first = await client.get("/assets/app-1a2b.js")
        again = await client.get(
            "/assets/app-1a2b.js", headers={"If-None-Match": first.headers["etag"]}
        )
        plain = await client.get("/assets/app-1a2b.js", headers={"Accept-Encoding": "identity"})
    assert first.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert first.headers["content-type"].startswith("text/javascript")
    assert first.headers["content-encoding"] == "gzip"
    assert first.text == plain.text == "export const x = 1;"
    assert (again.status_code, again.content) == (304, b"")


TRICKS = [
    "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/..%5csecret.txt", "//secret.txt", "/./link.txt",
    "/link.txt", "/.env", "/.git/config", "/__init__.py", "/assets/../.env", "/assets/",
    "/assets/%2e%2e/%2e%2e/secret.txt", "/index.html%00", "/assets/app-1a2b.js/",
]  # fmt: skip


@pytest.mark.parametrize("path", TRICKS)
async def test_no_path_leads_to_another_file(path: str, folder: Path) -> None:
    """T41."""
    async with rig(page=BuiltPage(folder)) as here:
        answer = await _raw(here.client(), path)
    assert answer.status_code == 404
    assert "SECRET" not in answer.text


async def test_the_real_page_has_nothing_inline_that_its_policy_forbids() -> None:
    async with rig(page=BuiltPage()) as here:
        index = await here.client().get("/")
    if not (BUILT_PAGE / "index.html").exists():
        pytest.skip("the page is not built")
    assert index.status_code == 200
    assert "<style" not in index.text
    assert " style=" not in index.text
    assert index.text.count("<script") == index.text.count('<script type="module" crossorigin src=')


async def test_the_page_can_be_installed() -> None:
    if not (BUILT_PAGE / "index.html").exists():
        pytest.skip("the page is not built")
    async with rig(page=BuiltPage()) as here:
        client = here.client()
        manifest = await client.get("/manifest.webmanifest")
        icons = [await client.get(icon["src"]) for icon in manifest.json()["icons"]]
    assert manifest.headers["content-type"] == "application/manifest+json"
    assert manifest.headers["cache-control"] == "no-cache"
    assert [icon.headers["content-type"] for icon in icons] == ["image/svg+xml"] + ["image/png"] * 2


async def _raw(client: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """Sends the path as it is: clients tidy dots away."""
    request = client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    return await client.send(request)
