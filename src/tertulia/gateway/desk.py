"""Everything a gateway function may reach, in one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tertulia.core.plans import Plan
from tertulia.gateway.streams import OpenStreams
from tertulia.ports import (
    Accounts,
    ApiKeys,
    Bell,
    Checks,
    Clock,
    Conversations,
    Log,
    Messages,
    NewId,
    Presence,
    Replicas,
    Sessions,
    Turns,
    Vocabulary,
)


@dataclass(frozen=True, slots=True)
class GatewayRules:
    """The numbers and words of the gateway, fixed at start.

    `system_prompt` is the current version's text, `prompt_version` its name.
    """

    system_prompt: str
    prompt_version: str
    # Bytes of a request body, refused before it is parsed.
    body_bytes: int = 2_000_000
    # A message longer than this many bytes is refused before it is tokenized.
    message_bytes: int = 400_000
    ping_s: float = 15.0
    retry_ms: int = 1000
    # A connection that has not taken its bytes for this long is cut; the client resumes.
    write_timeout_s: float = 30.0
    streams_per_user: int = 20
    session_s: float = 30 * 86400.0
    registration_open: bool = True
    # Host names that calls may use; "*" is any.
    hosts: tuple[str, ...] = ("*",)
    secure_cookies: bool = False


@dataclass(frozen=True, slots=True)
class Desk:
    """The ports and rules that gateway functions work with. `vocabulary` knows every model name;
    an unknown or absent model's vocabulary is that of the model which would answer instead."""

    turns: Turns
    presence: Presence
    log: Log
    bell: Bell
    conversations: Conversations
    messages: Messages
    accounts: Accounts
    sessions: Sessions
    api_keys: ApiKeys
    replicas: Replicas
    checks: Checks
    vocabulary: Callable[[str], Vocabulary]
    clock: Clock
    new_id: NewId
    streams: OpenStreams
    plans: Mapping[str, Plan]
    rules: GatewayRules
