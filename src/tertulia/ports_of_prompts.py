"""What is said once for many conversations, and where it may be used: what it needs from a store,
beside `ports`.

Every promise is a test of `tests/conformance`, run on every back end. Nothing here does anything.
Times are seconds of the store's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tertulia.core.opening import Footing, InstructionsVersion
from tertulia.core.rollout import PromptUse, Rollout
from tertulia.core.types import Conversation


class Prompts(Protocol):
    """Which versions of the system prompt there are, who is on them, and which one is rolled out.
    Their texts are stored by `Conversations.prompt_text`.

    Promises
    * `rollout` gives what was last rolled out, to every process; None before the first time.
    * `roll_out` is one atomic step: it is done, True, exactly if the rollout still is what its
      caller has `seen`.
    * `used` lists the newest `limit` versions, newest first. Conversations are counted up to
      `most`, so that the answer costs the same however many there are.
    * `move` is one atomic step: a conversation that still stands on `seen` stands on `to`
      afterwards. It gives what holds then, whoever moved it; None if the conversation is not this
      owner's. Nothing else of the conversation changes, nor its place in the list.
    """

    async def rollout(self) -> Rollout | None: ...
    async def roll_out(self, seen: Rollout | None, to: Rollout) -> bool: ...
    async def used(self, *, limit: int, most: int) -> Sequence[PromptUse]: ...
    async def move(
        self, owner: str, conversation_id: str, *, seen: Footing, to: Footing
    ) -> Footing | None: ...


class Instructions(Protocol):
    """What a person wants said to the model in every conversation, in versions.

    Promises
    * `write` makes the next version, under a number that this owner never had before, and gives
      it; a text that is the current one's already makes none. Conversations keep to the version
      that they have. Earlier versions that no conversation keeps to are removed.
    * `current` is the newest, None if there is none; `find` gives a version that is still there.
    * `forget` removes every version of the owner's at once, also those that conversations keep to:
      what is not there any more counts as none.
    """

    async def write(
        self, owner: str, text: str, *, tokens: int, tokenizer: str
    ) -> InstructionsVersion: ...
    async def current(self, owner: str) -> InstructionsVersion | None: ...
    async def find(self, owner: str, version: int) -> InstructionsVersion | None: ...
    async def forget(self, owner: str) -> None: ...


class Evaluation(Protocol):
    """The conversations whose owners let them be used to judge models and changes. Whatever judges
    takes conversations from here and from nowhere else.

    Promises: `usable` pages through those of users who agreed and whose account is open, by owner
    and id, after `after` (these two of the last one seen); `is_usable` says so of one. Both say
    what holds at that moment: whoever takes a while asks again before each use. What was deleted
    is not there, and what was never stored (a call of OpenAI's form) can't be.
    """

    async def usable(
        self, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> Sequence[Conversation]: ...
    async def is_usable(self, owner: str, conversation_id: str) -> bool: ...
