"""The tables of providers: what is read, what is refused, and that no secret shows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tertulia.backends.clock import SystemClock
from tertulia.config import ConfigError, Settings, load_settings, printed
from tertulia.wiring.sign_ons import sign_ons
from tertulia.wiring.stores import CantOpen

SECRET = "do-not-show-this-secret"
GOOD = f"""
[server]
public_url = "https://Chat.example.org/"
secure_cookies = true
[oidc.work]
issuer = "https://id.example.org/realms/work"
client_id = "tertulia"
client_secret = "{SECRET}"
title = "Work"
"""

AGAIN = f"""[oidc.again]
issuer = "https://id.example.org/realms/work"
client_id = "again"
client_secret = "{SECRET}"
title = "Again"
"""


def settings(folder: Path, toml: str) -> Settings:
    path = folder / "tertulia.toml"
    path.write_text(toml)
    return load_settings(path)


def test_a_provider_is_read_and_its_secret_is_not_shown(tmp_path: Path) -> None:
    read = settings(tmp_path, GOOD)
    table = read.oidc["work"]
    assert table.client_secret.get_secret_value() == SECRET
    assert table.scopes == ("openid", "email", "profile")
    assert table.admit == ()
    assert read.server.public_url == "https://chat.example.org"
    assert "chat.example.org" in read.server.known_hosts
    assert SECRET not in printed(read) + repr(read)


def test_a_secret_comes_from_the_environment_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERTULIA_OIDC__WORK__CLIENT_SECRET", "from-the-environment")
    read = settings(tmp_path, GOOD.replace(f'client_secret = "{SECRET}"\n', ""))
    assert read.oidc["work"].client_secret.get_secret_value() == "from-the-environment"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('issuer = "https:', 'issuer = "http:', "oidc.work.issuer: must begin with https://"),
        ('issuer = "https://', 'issuer = "', "oidc.work.issuer: must be an address such as"),
        ('realms/work"', 'realms/work?x=1"', "oidc.work.issuer: must be an address without"),
        ("https://id.", "https://user:pass@id.", "oidc.work.issuer: must be an address such"),
        ("[oidc.work]", "[oidc.Work]", "oidc.Work: a name is small letters"),
        (SECRET, "short", "oidc.work.client_secret: must have 16 characters"),
        ('client_id = "tertulia"', "", "oidc.work.client_id: Field required"),
        ('title = "Work"', 'title = ""', "oidc.work.title: String should have at least 1"),
        ("title", 'titel = "Work"\ntitle', "oidc.work.titel: there is no such setting"),
        ("title", 'scopes = ["email"]\ntitle', "oidc.work.scopes: must be words without spaces"),
        ("title", 'scopes = ["openid a"]\ntitle', "oidc.work.scopes: must be words without"),
        ("title", 'admit = ["@example.org"]\ntitle', "oidc.work.admit: must be e-mail domains"),
        ("title", 'role_claim = "groups"\ntitle', "role_claim and roles belong together"),
        ("title", 'plans = { gold = "plus" }\ntitle', "plan_claim and plans belong together"),
        (
            "title",
            'plan_claim = "tier"\nplans = { a = "gone" }\ntitle',
            "oidc.work.plans: there is no plan gone",
        ),
        (
            "title",
            'role_claim = "groups"\nroles = { a = "root" }\ntitle',
            "oidc.work.roles.a: Input should be 'admin' or 'user'",
        ),
        ('public_url = "https://Chat.example.org/"', "", "server.public_url: must say where"),
        ("Chat.example.org/", "chat.example.org/a", "server.public_url: must be an address"),
        ("https://Chat.", "ftp://chat.", "server.public_url: must be an address such as"),
        ("https://Chat.example", "https://[half", "server.public_url: can't be read"),
        ("secure_cookies = true", "", "server.secure_cookies: must be true where"),
        (
            'title = "Work"',
            f'title = "Work"\n{AGAIN}',
            "oidc: two providers have the same issuer",
        ),
    ],
)
def test_a_table_that_is_wrong_is_refused_in_one_sentence(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, GOOD.replace(old, new, 1))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_provider_on_this_machine_needs_no_tls(tmp_path: Path) -> None:
    for host in ("127.0.0.1:8080", "localhost", "[::1]:8080"):
        read = settings(tmp_path, GOOD.replace("https://id.example.org", f"http://{host}"))
        assert read.oidc["work"].issuer == f"http://{host}/realms/work"


def test_the_way_back_is_built_from_the_public_address(tmp_path: Path) -> None:
    made = sign_ons(settings(tmp_path, GOOD), SystemClock())["work"]
    back = "https://chat.example.org/v1/auth/oidc/work/callback"
    assert made.provider._ours.redirect_uri == back  # type: ignore[attr-defined]  # of the real one
    assert SECRET not in repr(made.provider._ours)  # type: ignore[attr-defined]  # of the real one
    assert replace(made, title="x").title == "x"


def test_a_missing_package_is_said_with_the_command_that_brings_it(tmp_path: Path) -> None:
    read = settings(tmp_path, GOOD)
    kept = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.startswith("tertulia.backends.openid")
    }
    missing = dict.fromkeys(name for name in sys.modules if name.startswith("authlib"))
    try:
        with (
            patch.dict(sys.modules, {"authlib": None, **missing}),
            pytest.raises(CantOpen, match=r"\[oidc.work\].*authlib.*scripts/setup oidc"),
        ):
            sign_ons(read, SystemClock())
    finally:
        sys.modules.update(kept)


def test_without_a_provider_nothing_of_the_extra_is_needed(tmp_path: Path) -> None:
    with patch.dict(sys.modules, {"authlib": None, "joserfc": None}):
        assert sign_ons(settings(tmp_path, "[server]\nport = 8001\n"), SystemClock()) == {}
