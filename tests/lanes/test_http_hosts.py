"""A foreign name that resolves to this machine is refused before anything is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tertulia.config import load_settings
from tests.lanes.gateway_rig import PASSWORD, RULES, rig

pytestmark = pytest.mark.anyio

LOCAL = replace(RULES, hosts=load_settings(None).server.known_hosts)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[::1]evil.example", ""]
)
async def test_a_foreign_host_name_gets_nothing(host: str) -> None:
    async with rig(rules=LOCAL) as here:
        client = here.client()
        account = {"name": "mallory", "password": PASSWORD}
        answer = await client.post("/v1/auth/register", json=account, headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert await here.backend.accounts.by_name("mallory") is None


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "LOCALHOST", "[::1]:8000"])
async def test_loopback_names_are_known(host: str) -> None:
    async with rig(rules=LOCAL) as here:
        answer = await here.client().get("/livez", headers={"Host": host})
        assert answer.status_code == 200


def test_names_are_asked_for_only_where_a_stranger_could_point_one(tmp_path: Path) -> None:
    path = tmp_path / "tertulia.toml"
    path.write_text('[server]\nhost = "0.0.0.0"\n')
    assert load_settings(path).server.known_hosts == ("*",)
    path.write_text('[server]\nhost = "0.0.0.0"\nhosts = ["chat.example"]\n')
    assert "chat.example" in load_settings(path).server.known_hosts
    assert "*" not in load_settings(path).server.known_hosts
