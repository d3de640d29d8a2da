"""Everything a gateway function may reach, in one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tertulia.core.batches import BatchRules
from tertulia.core.difficulty import SMALL_BELOW
from tertulia.core.identities import AccountRules
from tertulia.core.imports import ImportRules
from tertulia.core.money import Prices
from tertulia.core.plans import Plan
from tertulia.flagging import Flags
from tertulia.gateway.counters import Counters
from tertulia.gateway.figures import Figures
from tertulia.gateway.line import LineWatch
from tertulia.gateway.pulse import Pulse
from tertulia.gateway.refusals import Refusals
from tertulia.gateway.streams import OpenStreams
from tertulia.lookout import Lookout
from tertulia.ports import (
    Accounts,
    ApiKeys,
    Bell,
    Branches,
    Checks,
    Clock,
    Conversations,
    Grader,
    Log,
    LooseTurns,
    Messages,
    NewId,
    Presence,
    Replicas,
    Sessions,
    Shares,
    Turns,
    Vocabulary,
)
from tertulia.ports_of_batches import Batches, BatchWork, Files
from tertulia.ports_of_deletions import Deletions, Erasure
from tertulia.ports_of_identities import Identities, Provider
from tertulia.ports_of_moving import Imports, ImportWork, Transcripts
from tertulia.ports_of_operations import Holds
from tertulia.ports_of_planning import Planning
from tertulia.ports_of_prompts import Instructions, Prompts


@dataclass(frozen=True, slots=True)
class GatewayRules:
    """The numbers of the gateway, fixed at start."""

    # Bytes of a request body, refused before it is parsed.
    body_bytes: int = 2_000_000
    # A message longer than this many bytes is refused before it is tokenized.
    message_bytes: int = 400_000
    # Fewer tokens without code are easy, where nothing better than the crude rule says so.
    easy_tokens: int = 200
    # What is graded below this is easy, of 0 to 999: as the worker has it.
    small_below: int = SMALL_BELOW
    ping_s: float = 15.0
    retry_ms: int = 1000
    session_s: float = 30 * 86400.0
    registration_open: bool = True
    # Whether links to conversations can be made, and work.
    shares_open: bool = True
    # Where people open the page, without a slash at the end; empty where nobody needs to know.
    public_url: str = ""
    # Addresses and networks of proxies that say where a call comes from.
    trusted_proxies: tuple[str, ...] = ()
    # Host names that calls may use; "*" is any.
    hosts: tuple[str, ...] = ("*",)
    secure_cookies: bool = False
    # What the fleet costs; None: nobody has said.
    prices: Prices | None = None
    batches: BatchRules = field(default_factory=BatchRules)
    imports: ImportRules = field(default_factory=ImportRules)


@dataclass(frozen=True, slots=True)
class SignOn:
    """A provider by which people sign in: what the page shows of it, and who may come in by it."""

    name: str
    title: str
    issuer: str
    provider: Provider
    rules: AccountRules


@dataclass(frozen=True, slots=True)
class Desk:
    """The ports and rules that gateway functions work with. `vocabulary` knows every model name;
    an unknown or absent model's vocabulary is that of the model which would answer instead.
    `canned` are the ready replies by their questions (`core.canned.plainly`)."""

    turns: Turns
    loose: LooseTurns
    presence: Presence
    log: Log
    bell: Bell
    conversations: Conversations
    messages: Messages
    branches: Branches
    shares: Shares
    accounts: Accounts
    identities: Identities
    sessions: Sessions
    api_keys: ApiKeys
    files: Files
    batches: Batches
    batch_work: BatchWork
    deletions: Deletions
    erasure: Erasure
    transcripts: Transcripts
    imports: Imports
    import_work: ImportWork
    prompts: Prompts
    instructions: Instructions
    replicas: Replicas
    checks: Checks
    grader: Grader
    vocabulary: Callable[[str], Vocabulary]
    clock: Clock
    new_id: NewId
    counters: Counters
    streams: OpenStreams
    line: LineWatch
    lookout: Lookout
    refusals: Refusals
    plans: Mapping[str, Plan]
    rules: GatewayRules
    holds: Holds
    planning: Planning
    pulse: Pulse
    figures: Figures = field(default_factory=Figures)
    flags: Flags = field(default_factory=Flags)
    canned: Mapping[str, str] = field(default_factory=dict)
    sign_ons: Mapping[str, SignOn] = field(default_factory=dict)
