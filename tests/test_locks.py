"""The lock files name exact versions with hashes and no addresses, and agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FULL = "requirements.lock"
OPENVINO = "requirements-openvino.lock"
FLEET = "requirements-fleet.lock"
OIDC = "requirements-oidc.lock"
SIMULATE = "requirements-simulate.lock"
LOCKS = (
    FULL,
    "requirements-run.lock",
    OPENVINO,
    FLEET,
    OIDC,
    SIMULATE,
    "requirements-bootstrap.lock",
    "requirements-peers.lock",
)

PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*)", re.MULTILINE)


def pins(lock: str) -> set[tuple[str, str]]:
    return {(pin["name"], pin["version"]) for pin in PIN.finditer((ROOT / lock).read_text())}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    blocks = [block for block in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE) if block]
    bare = [block.splitlines()[0] for block in blocks[1:] if "--hash=sha256:" not in block]
    assert bare == []
    assert len(blocks) > 1
    assert not re.search(r"https?:|--(index|extra-index|find-links)", text)
    assert " @ " not in text


def test_the_service_runs_on_the_versions_that_were_tested() -> None:
    assert pins("requirements-run.lock") <= pins(FULL)


def test_openvino_comes_beside_the_versions_that_were_tested() -> None:
    assert pins("requirements-run.lock") <= pins(OPENVINO)
    named = {name for name, _ in pins(FULL)}
    assert {pin for pin in pins(OPENVINO) if pin[0] in named} <= pins(FULL)


@pytest.mark.parametrize(
    ("extra", "lock"), [("fleet", FLEET), ("oidc", OIDC), ("simulate", SIMULATE)]
)
def test_an_extra_runs_on_the_versions_that_were_tested(extra: str, lock: str) -> None:
    assert pins("requirements-run.lock") <= pins(lock) <= pins(FULL)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    wanted = {found[0] for line in extras[extra] if (found := re.match(r"[\w-]+", line))}
    assert wanted <= {name for name, _ in pins(lock)}, "run make lock"


@pytest.mark.parametrize("lock", [FULL, "requirements-run.lock", OPENVINO, FLEET, SIMULATE])
def test_every_direct_dependency_is_locked(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {found[0] for line in project["dependencies"] if (found := re.match(r"[\w-]+", line))}
    assert wanted <= {name for name, _ in pins(lock)}, "run make lock"
