"""The tables of the fleet in the configuration: replicas that run elsewhere, and the stores in
which gateways and workers meet."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl, Field, SecretStr, field_validator, model_validator

from tertulia.core.engines import EngineName, refusal_of
from tertulia.plan_tables import Table, Tokens


class ReplicaTable(Table):
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
    engine: EngineName = Field("vllm", description="What runs there: tertulia, vllm or sglang.")
    window_tokens: Tokens | None = Field(
        None, description="Its longest prompt and answer, where replicas of one model differ."
    )
    trusted: bool = Field(
        False, description="Skip the comparison of tokenizers, for one that has no /tokenize."
    )

    @field_validator("engine")
    @classmethod
    def _can_be_continued(cls, engine: EngineName) -> EngineName:
        if refusal := refusal_of(engine):
            raise ValueError(refusal)
        return engine


class FleetTable(Table):
    """Where gateways and workers on several machines meet; without it all is one SQLite file."""

    database: SecretStr | None = Field(
        None, description="Postgres, as postgresql://user:password@host/name."
    )
    valkey: tuple[SecretStr, ...] = Field(
        (),
        description="Nodes of Valkey (or Redis 7), as valkey://host:port; one, a primary with its"
        " replicas, or some of a cluster.",
    )
    counters: tuple[SecretStr, ...] = Field(
        (),
        description="Nodes of a Valkey of its own for what all gateways count together: open"
        " streams and tries to sign in. That of `valkey` if none is named.",
    )
    replica_key: SecretStr | None = Field(
        None,
        description="The key that all replicas which register by themselves want, and sign"
        " their reports with.",
    )

    @field_validator("database")
    @classmethod
    def _is_postgres(cls, address: SecretStr | None) -> SecretStr | None:
        return _with_scheme(address, ("postgresql", "postgres")) if address is not None else None

    @field_validator("valkey", "counters")
    @classmethod
    def _is_valkey(cls, nodes: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        return tuple(_with_scheme(node, ("valkey", "valkeys", "redis", "rediss")) for node in nodes)

    @model_validator(mode="after")
    def _has_both_or_none(self) -> FleetTable:
        if (self.database is None) != (not self.valkey):
            raise ValueError("database and valkey belong together: give both, or none")
        if self.counters and not self.valkey:
            raise ValueError("counters is for a fleet: give database and valkey too")
        return self


def shown_address(address: SecretStr) -> str:
    """Where an address leads, without who goes there: no user, no password, no options."""
    parts = urlsplit(address.get_secret_value())
    host = parts.hostname or "this machine"
    port = f":{parts.port}" if parts.port else ""
    return f"{f'[{host}]' if ':' in host else host}{port}{parts.path}"


def _with_scheme(address: SecretStr, schemes: tuple[str, ...]) -> SecretStr:
    """The address, if it is one; what is wrong with it is said without it."""
    wanted = " or ".join(f"{scheme}://" for scheme in schemes[:2])
    try:
        parts = urlsplit(address.get_secret_value())
        _ = parts.port
    except ValueError:
        raise ValueError(f"can't be read as an address that begins with {wanted}") from None
    if parts.scheme not in schemes:
        raise ValueError(f"must begin with {wanted}")
    return address
