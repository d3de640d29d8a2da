"""A person in front of the real page: what they do, what they see, and what the store has of it.

It compares texts exactly: what the page copies is the text as it holds it, what the page shows is
read from the document, and what is stored is read from the database beside the running service.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

from playwright.async_api import Browser, BrowserContext, Locator, Page, Request, expect

from tertulia.backends.replicas.fleet import read_fleet
from tertulia.drills.loopback import loopback
from tests.e2e.processes import Service, rows

CHROMIUM = "/usr/bin/chromium"
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_MS = 25_000  # two cores that do other things as well
AGAIN_MS = 80_000  # and what was killed has to start again on them
# A fake's time for a token while something is done to its answer: its first sentence is there in
# less than a second, and the longest answer takes longer than what is done.
STEP_S = 0.06
# And when only the end is waited for.
QUICK_S = 0.001
# An answer that has begun does not end meanwhile, however slow the machine is: the longest takes a
# minute more. Slower and the replica would be taken for stuck.
SLOW_S = 0.3
LONG = "Write a long story about a ship and its crew, at length."
LONG_TOO = "Write another long story, about a mountain and a village, at length."
SHORT = "Say hello in a word."

# Timers of the length of an undo never ring.
ALL_THE_TIME = """() => {
  const begin = window.setTimeout;
  window.setTimeout = (what, ms, ...rest) => begin(what, ms >= 7000 ? 2 ** 30 : ms, ...rest);
}"""

_PASTE = """(box, characters) => {
  const clipboard = new DataTransfer();
  clipboard.setData("text/plain", "x".repeat(characters));
  const paste = new ClipboardEvent("paste",
    { clipboardData: clipboard, bubbles: true, cancelable: true });
  if (box.dispatchEvent(paste)) throw new Error("it would be put into the box");
}"""

_LOOKED_AT = """(count) => dispatchEvent(new Event('focus'))
  && document.querySelectorAll('.message.reply').length >= count"""

# Notes when the last reply shows less than it did; marks that turn out to be markup may go.
_MARKUP = 12
_WATCH_SHRINK = """(markup) => {
  window.shrunk = [];
  let most = 0;
  new MutationObserver(() => {
    const last = [...document.querySelectorAll('.message.reply')].at(-1);
    const { length } = last?.querySelector('.prose')?.textContent ?? '';
    if (length < most - markup) window.shrunk.push([most, length]);
    most = Math.max(most, length);
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""

# The last reply has begun and has not ended: this many characters of it are on the screen.
_TALKING = """(least) => {
  const last = [...document.querySelectorAll('.message.reply')].at(-1);
  const text = last?.querySelector('.prose')?.innerText ?? '';
  return last?.getAttribute('aria-busy') === 'true' && text.length >= least;
}"""


@dataclass
class Person:
    """One browser profile with one account, and the tab that is looked at."""

    service: Service
    context: BrowserContext
    page: Page
    name: str
    id: str = ""
    url: str = ""  # where their browser finds the service
    addresses: list[str] = field(default_factory=list)  # of every request of every tab
    breakdowns: list[str] = field(default_factory=list)  # errors that no code of the page caught

    def __post_init__(self) -> None:
        self.url = self.url or self.service.url

    # --- doing -------------------------------------------------------------------------------

    async def register(self) -> None:
        """An account of their own, made without the page; the browser keeps the cookie."""
        answer = await self.context.request.post(
            self.service.url + "/v1/auth/register",
            data={"name": self.name, "password": secrets.token_hex(8)},
        )
        assert answer.ok, await answer.text()
        self.id = (await (await self.context.request.get(self.service.url + "/v1/me")).json())["id"]

    async def has_plan(self, plan: str) -> None:
        """As an administrator gives it to them, at once."""
        headers = {"Authorization": f"Bearer {self.service.key}"}
        async with loopback(20, headers=headers) as http:
            place = f"{self.service.url}/v1/admin/users/{self.id}"
            answer = await http.patch(place, json={"plan": plan})
            assert answer.status_code == 200, answer.text

    def watch(self, page: Page) -> None:
        """Keeps every address that a tab asks for, and every error that it throws."""
        page.on("request", self._asked)
        page.on("pageerror", lambda error: self.breakdowns.append(str(error)))

    def _asked(self, request: Request) -> None:
        self.addresses.append(request.url)

    async def open(self, conversation: str | None = None) -> None:
        """The page, ready to write in."""
        path = "/" if conversation is None else f"/c/{conversation}"
        await self.page.goto(self.url + path)
        await expect(self.box).to_be_visible()

    async def tab(self) -> Person:
        """The same person in one more tab."""
        page = await self.context.new_page()
        self.watch(page)
        return replace(self, page=page)

    @contextlib.asynccontextmanager
    async def device(self, browser: Browser) -> AsyncGenerator[Person, None]:
        """The same person at another device: signed in as well, and nothing else in common."""
        context = await profile(browser)
        stored = (await self.context.storage_state())["cookies"]
        await context.add_cookies(stored)  # type: ignore[arg-type]  # read as one type, given as another
        page = await context.new_page()
        self.watch(page)
        try:
            yield replace(self, context=context, page=page)
        finally:
            await context.close()

    async def sees(self, replies: int) -> None:
        """Looks at the page again, as somebody who comes back to it, until it shows so many."""
        # Headless windows all think that they have the focus.
        await self.page.wait_for_function(_LOOKED_AT, arg=replies, polling=100)

    async def write(self, text: str) -> None:
        """Types nothing by hand: the text is in the box at once."""
        await self.box.fill(text)

    async def paste(self, characters: int) -> None:
        """Pastes more than may be sent, which the page must not let into the box."""
        await self.box.evaluate(_PASTE, characters)

    async def ask(self, text: str) -> None:
        """Sends a message with Enter; its answer takes its time until its end is waited for."""
        await self.service.pace(STEP_S)
        await self.write(text)
        await self.box.press("Enter")

    async def ask_and_read(self, text: str) -> str:
        """Asks, and returns the conversation's id when the answer has ended."""
        before = await self.replies.count()
        await self.ask(text)
        await expect(self.replies).to_have_count(before + 1)
        await self.ended()
        return self.conversation

    # --- seeing ------------------------------------------------------------------------------

    @property
    def box(self) -> Locator:
        return self.page.locator(".composer-text")

    @property
    def replies(self) -> Locator:
        return self.page.locator(".message.reply")

    @property
    def questions(self) -> Locator:
        return self.page.locator(".message.question")

    @property
    def last(self) -> Locator:
        return self.replies.last

    @property
    def conversation(self) -> str:
        """The conversation that the address names."""
        place = self.page.url.split("/c/")
        assert len(place) == 2, self.page.url
        return place[1]

    async def talking(self, least: int = 25) -> str:
        """Waits until the last reply is in full flow; what is on the screen of it."""
        await self.page.wait_for_function(_TALKING, arg=least, timeout=PATIENCE_MS)
        return await self.shown()

    async def still_talking(self) -> bool:
        return await self.last.get_attribute("aria-busy") == "true"

    async def stop(self) -> None:
        """Stops the answer on the screen, and waits for the service's word that it has ended."""
        async with self.page.expect_response("**/stop") as answer:
            await self.page.get_by_role("button", name="Stop the answer").click()
        assert (await answer.value).status == 200

    @contextlib.asynccontextmanager
    async def never_shrinking(self) -> AsyncGenerator[None, None]:
        """Meanwhile the last reply is never blank again, and never shorter."""
        await self.page.evaluate(_WATCH_SHRINK, _MARKUP)
        yield
        assert await self.page.evaluate("() => window.shrunk") == []

    async def ended(self) -> None:
        """Waits until no reply on the screen is under way; what is left of it comes at once."""
        await self.service.pace(QUICK_S)
        await expect(self.last).to_have_attribute("aria-busy", "false", timeout=AGAIN_MS)
        await expect(self.page.locator(".message.reply[aria-busy=true]")).to_have_count(0)

    async def shown(self) -> str:
        """The last reply as a reader sees it, however few of its blocks are in the window."""
        prose = self.last.locator(".prose")
        return (await prose.text_content()) or "" if await prose.count() else ""

    async def copied(self, message: Locator) -> str:
        """A message's text as the page holds it: what its copy button gives."""
        await self.page.bring_to_front()
        await message.scroll_into_view_if_needed()  # far from it there are no buttons
        await self.page.evaluate("() => navigator.clipboard.writeText('')")
        await message.get_by_role("button", name="Copy", exact=True).last.click()
        await expect(message.get_by_role("button", name="Copied")).to_be_visible()
        return str(await self.page.evaluate("() => navigator.clipboard.readText()"))

    # --- comparing ---------------------------------------------------------------------------

    def stored(self, conversation: str | None = None) -> list[dict[str, Any]]:
        """The conversation's messages as they lie on the disk."""
        found = rows(
            self.service.database,
            "SELECT id, parent_id, role, content, status, finish FROM messages"
            " WHERE owner = ? AND conversation_id = ? ORDER BY seq",
            self.id,
            conversation or self.conversation,
        )
        names = ("id", "parent", "role", "content", "status", "finish")
        return [dict(zip(names, row, strict=True)) for row in found]

    def count(self, table: str) -> int:
        """How many rows of theirs a table has."""
        (row,) = rows(
            self.service.database, f"SELECT count(*) FROM {table} WHERE owner = ?", self.id
        )
        assert isinstance(row[0], int)
        return row[0]

    def charged(self, reply: str) -> tuple[int, int]:
        """The tokens of the prompt and of the answer that a reply was charged for."""
        (row,) = rows(
            self.service.database,
            "SELECT input_tokens, output_tokens FROM turns WHERE owner = ? AND reply_id = ?",
            self.id,
            reply,
        )
        read, made = row
        assert isinstance(read, int)
        assert isinstance(made, int)
        return read, made

    async def until_titled(self) -> None:
        """Waits until a title was made for each conversation of theirs, or given up."""
        wanted = (
            "SELECT 1 FROM conversations c WHERE owner = ? AND titled_by = 'words' AND NOT EXISTS"
            " (SELECT 1 FROM tasks t WHERE t.owner = c.owner AND t.conversation_id = c.id"
            " AND t.kind = 'title' AND t.due_at IS NULL)"
        )
        async with asyncio.timeout(PATIENCE_MS / 1000):
            while True:
                if not rows(self.service.database, wanted, self.id):
                    return
                await asyncio.sleep(0.05)

    async def until_stored(self, table: str, count: int) -> None:
        """Waits until a table has so many rows of theirs."""
        async with asyncio.timeout(PATIENCE_MS / 1000):
            while True:
                if self.count(table) == count:
                    return
                await asyncio.sleep(0.05)

    async def matches_store(self) -> str:
        """The last reply is on the screen exactly as it is stored, now and after a reload."""
        reply = [m for m in self.stored() if m["role"] == "assistant"][-1]
        assert reply["content"] != "", reply
        held, seen = await self.copied(self.last), await self.shown()
        assert held == reply["content"], f"{held!r} is shown, {reply['content']!r} is stored"
        await self.page.reload()
        await expect(self.last).to_have_attribute("aria-busy", "false")
        await expect(self.last.locator(".is-plain")).to_have_count(0)
        again = await self.shown()
        assert again == seen, f"{seen!r} is {again!r} after a reload"
        assert await self.copied(self.last) == held
        return held

    async def lost_nothing(self, begun: str) -> None:
        """Their only answer went on from `begun` to its end, once, and is shown as it is stored."""
        await self.ended()
        assert (await self.shown()).startswith(begun[:20])
        await self.matches_store()
        assert (self.count("conversations"), self.count("messages")) == (1, 2)

    async def plant(self, question: str, answer: str, **columns: object) -> str:
        """A conversation whose texts a test chose, as if they had been said; its id."""
        http, ours = self.context.request, {"Sec-Fetch-Site": "same-origin"}
        made = await http.post(self.service.url + "/v1/conversations", data={}, headers=ours)
        conversation = str((await made.json())["id"])
        place = f"{self.service.url}/v1/conversations/{conversation}/messages"
        asked = await http.post(
            place, data={"content": SHORT}, headers=ours | {"Idempotency-Key": secrets.token_hex(8)}
        )
        assert asked.ok, await asked.text()
        await self.quiet()
        values = {"content": answer, "status": "completed", "finish": "stop", **columns}
        with contextlib.closing(sqlite3.connect(self.service.database, timeout=10)) as database:
            for role, chosen in (("user", {"content": question}), ("assistant", values)):
                setting = ", ".join(f"{column} = ?" for column in chosen)
                database.execute(
                    f"UPDATE messages SET {setting}"
                    " WHERE owner = ? AND conversation_id = ? AND role = ?",
                    (*chosen.values(), self.id, conversation, role),
                )
            database.commit()
        return conversation

    async def titled(self, conversation: str, title: str) -> None:
        """Another title, as if it had been given on the page."""
        place = f"{self.service.url}/v1/conversations/{conversation}"
        answer = await self.context.request.patch(
            place, data={"title": title}, headers={"Sec-Fetch-Site": "same-origin"}
        )
        assert answer.ok, await answer.text()

    async def has_time_to_undo(self) -> None:
        """As long as it takes: a busy machine must not let the time to undo run out."""
        await self.page.evaluate(ALL_THE_TIME)

    async def becomes_administrator(self) -> None:
        """As another administrator would make them; there is none here to do it."""
        with contextlib.closing(sqlite3.connect(self.service.database, timeout=10)) as database:
            database.execute("UPDATE users SET role = 'admin' WHERE id = ?", (self.id,))
            database.commit()

    async def copies(self, conversation: str, count: int) -> None:
        """So many more conversations like this one, each an hour older than the one before."""
        with contextlib.closing(sqlite3.connect(self.service.database, timeout=20)) as database:
            database.row_factory = sqlite3.Row
            found = database.execute(
                "SELECT * FROM conversations WHERE owner = ? AND id = ?", (self.id, conversation)
            ).fetchone()
            row = {**found, "key": None}
            names = ", ".join(row)
            marks = ", ".join(f":{name}" for name in row)
            database.executemany(
                f"INSERT INTO conversations ({names}) VALUES ({marks})",
                (
                    row
                    | {
                        "id": f"c_{number:026d}",
                        "title": f"Copy {number}",
                        "updated_at": found["updated_at"] - 3600 * number,
                    }
                    for number in range(1, count + 1)
                ),
            )
            database.commit()

    def lengthen(self, conversation: str, count: int) -> None:
        """Makes a planted conversation one of `count` messages, one below the other, each with its
        number in its text and some taller than others."""
        here = (self.id, conversation)
        with contextlib.closing(sqlite3.connect(self.service.database, timeout=10)) as database:
            database.row_factory = sqlite3.Row
            two = database.execute(
                "SELECT * FROM messages WHERE owner = ? AND conversation_id = ? ORDER BY seq", here
            ).fetchall()
            above = two[-1]["id"]
            for n in range(3, count + 1):
                own = {
                    "seq": n,
                    "id": f"m_{n:09}",
                    "parent_id": above,
                    "content": f"Message {n}" + "\n\nand more of it" * (n % 7),
                }
                row = {**dict(two[(n - 1) % 2]), **own}
                marks = ", ".join("?" * len(row))
                adding = f"INSERT INTO messages ({', '.join(row)}) VALUES ({marks})"
                database.execute(adding, tuple(row.values()))
                above = own["id"]
            database.execute(
                "UPDATE conversations SET head_message_id = ? WHERE owner = ? AND id = ?",
                (above, *here),
            )
            database.commit()

    async def quiet(self) -> None:
        """Ends what of theirs is still running, so that the next test has the engine alone."""
        running = rows(
            self.service.database,
            "SELECT id FROM messages WHERE owner = ? AND status IN ('queued', 'running')",
            self.id,
        )
        for (message,) in running:
            await self.context.request.post(
                f"{self.service.url}/v1/messages/{message}/stop",
                headers={"Sec-Fetch-Site": "same-origin"},
            )


def versions(message: Locator) -> Locator:
    """Where one of several versions of a message is chosen."""
    return message.get_by_role("group", name="Versions")


async def profile(browser: Browser) -> BrowserContext:
    """A browser profile without a past. Words appear as they come, without the page's pacing."""
    context = await browser.new_context(
        viewport={"width": 1100, "height": 800},
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    return context


async def engine_uses(service: Service, reply: str) -> list[dict[str, Any]]:
    """What the engine was asked for a reply and how that ended, by its own account, once it has."""
    (engine,) = read_fleet(service.folder / "run" / "fleet.json").replicas
    headers = {"Authorization": f"Bearer {engine.key}"}
    url = f"{engine.url}/inference/v1/usage?limit=1000"
    async with asyncio.timeout(PATIENCE_MS / 1000), loopback(5, headers=headers) as http:
        while True:
            told = (await http.get(url)).json()["requests"]
            uses = [one for one in told if one["request_id"].startswith(f"{reply}-")]
            if all(one["finish"] for one in uses):
                return uses
            await asyncio.sleep(0.02)
