"""What a model or a person writes is shown and never runs, and never asks another host."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.web.person import Person

pytestmark = pytest.mark.anyio

HOSTILE = """It costs $1.50 today and $3 tomorrow.

![a map](https://pictures.invalid/p.png?leak=words)

<img src="https://pictures.invalid/i.png" onerror="window.ran = 'img'">

<svg onload="window.ran = 'svg'"><circle r="9"/></svg>

<script>window.ran = 'script'</script>

<meta http-equiv="refresh" content="0;url=https://elsewhere.invalid/">

<style>body { background: url(https://pictures.invalid/b.png) }</style>

<iframe src="https://elsewhere.invalid/"></iframe>

[run](javascript:window.ran='link') and [page](data:text/html,<script>1</script>) and
<javascript:window.ran='auto'> and [elsewhere](https://elsewhere.invalid/path?leak=words)

```html"><img src=x onerror="window.ran='fence'">
<b>code</b>
```
"""


async def test_hostile_markdown_is_inert(person: Person) -> None:
    conversation = await person.plant(HOSTILE, HOSTILE)
    await person.open(conversation)
    prose = person.last.locator(".prose")
    await expect(prose.locator(".is-plain")).to_have_count(0)
    await expect(prose).to_contain_text("It costs $1.50 today and $3 tomorrow.")
    await expect(prose).to_contain_text("<svg onload=")
    made = "img, svg, script, meta, style, iframe, object, math, form, link, [onerror], [onload]"
    assert await prose.locator(made).count() == 0
    links = await prose.locator("a").evaluate_all("all => all.map((a) => a.href)")
    # Also the addresses in what would have been tags: as text, they are links like any other.
    assert "https://elsewhere.invalid/path?leak=words" in links
    assert [link for link in links if not link.startswith("https://")] == []
    assert await person.questions.locator(".bubble").text_content() == HOSTILE
    assert await person.questions.locator(".bubble *").count() == 0
    assert await person.page.evaluate("() => window.ran") is None
    assert person.page.url == f"{person.url}/c/{conversation}"
    assert await person.copied(person.last) == HOSTILE


async def test_a_link_of_an_answer_asks_before_it_opens(person: Person) -> None:
    await person.open(await person.plant("Where?", "See [there](https://elsewhere.invalid/a?b=c)."))
    await person.last.get_by_role("link", name="there").click()
    question = person.page.get_by_role("dialog")
    await expect(question).to_contain_text("https://elsewhere.invalid/a?b=c")
    await question.get_by_role("button", name="Cancel").click()
    await expect(question).to_have_count(0)
    assert len(person.context.pages) == 1


async def test_code_is_copied_as_it_was_written(person: Person) -> None:
    code = "def f(x):\n    return x < 2 and 'a&b'\n"
    await person.open(await person.plant("Code?", f"Here:\n\n```python\n{code}```\n"))
    await person.last.get_by_role("button", name="Copy").first.click()
    await expect(person.last.get_by_role("button", name="Copied")).to_be_visible()
    assert await person.page.evaluate("() => navigator.clipboard.readText()") == code
