"""The tree stays readable: names say what they hold, files open with their purpose, nothing leaks.

Rules of CONTRIBUTING.md that no linter knows. Each failure says what to do instead.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON_FOLDERS = ("src/", "tests/", "scripts/", "bench/", "examples/")

# A name without an edge collects whatever has no better place.
DUMPING_GROUNDS = frozenset(
    ("base", "common", "helper", "helpers", "lib", "manager", "misc", "service", "util", "utils")
)

LINES_LIMIT = 400  # above it a file holds a second noun
TEST_LINES_LIMIT = 600  # a list of promises or of refusals is read by its names, not in one go
LONG_FILES: dict[str, str] = {
    "src/tertulia/backends/migrations/postgres/versions/m0001_begin.py": "a whole schema, table by"
    " table, with its functions; none was released that another revision could begin from",
    "src/tertulia/backends/migrations/sqlite/versions/m0001_begin.py": "a whole schema, table by"
    " table, as for Postgres",
    "src/tertulia/core/types.py": "the values all lanes share, one after the other; no behaviour",
    "src/tertulia/ports.py": "all that the lanes need from the world, promise by promise",
}

# The project speaks of itself alone. The words are cut in two so that this file passes as well.
HOSTS = "|".join(
    re.escape(host)
    for host in (
        "pypi." + "org",
        "files.python" + "hosted.org",
        "registry.npm" + "js.org",
        "registry.yarn" + "pkg.com",
        "deb.deb" + "ian.org",
        "security.deb" + "ian.org",
    )
)
FORBIDDEN = {
    "a registry's host (clients are configured, not told)": re.compile(HOSTS),
    "a path of one developer's machine": re.compile(
        "|".join((r"(?<![\w.])/wo" + "rk/", "/ro" + r"ot/\w", r"\.lib" + "rary/", r"/home/\w+/"))
    ),
    "a word of a workplace": re.compile(
        "|".join(("sub" + "agent", "before" + "-stop", r"\bissues? [#]?\d{1,3}\b")), re.IGNORECASE
    ),
}
MAIL = re.compile(r"[\w.+-]+@(?!example\.)[\w-]+\.(?!example\b|test\b|invalid\b)[a-z]{2,}\b")

# Built or licensed text that is not ours to word.
OTHERS_TEXT = re.compile(r"^(LICENSE|NOTICE|src/tertulia/gateway/pages/|web/.*\.lock$)")

EXCEPTION = re.compile(
    r"#\s*(?P<kind>noqa|type:\s*ignore|pragma:\s*no (?:cover|branch))"
    r"(?::\s*(?P<codes>[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*)|\[[\w,\s-]+\])?(?P<rest>.*)"
)
REASON_LETTERS = 8  # shorter is no reason


@cache
def tracked() -> tuple[str, ...]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listing.stdout.decode().split("\0")
    return tuple(sorted(name for name in names if name and (ROOT / name).is_file()))


def python_files() -> list[str]:
    return [name for name in tracked() if name.endswith(".py") and name.startswith(PYTHON_FOLDERS)]


@cache
def text_of(name: str) -> str:
    """The file as text; empty for one that is not UTF-8 (a picture, an archive)."""
    try:
        return (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_every_module_opens_with_what_it_is_for() -> None:
    silent = [
        name
        for name in python_files()
        if text_of(name).strip() and not ast.get_docstring(ast.parse(text_of(name)))
    ]
    assert silent == [], "open each with one or two sentences: its purpose, what it must never do"


def test_no_file_or_folder_is_a_dumping_ground() -> None:
    dirty = [
        name
        for name in tracked()
        if any(Path(part).stem.lower() in DUMPING_GROUNDS for part in Path(name).parts)
    ]
    assert dirty == [], "name the thing it holds, or put that where it is used"


def test_no_file_is_longer_than_it_can_be_read() -> None:
    sources = [
        name
        for name in tracked()
        if name.endswith((".py", ".ts", ".tsx", ".css", ".sql"))
        and not OTHERS_TEXT.match(name)
        and name not in LONG_FILES
    ]
    long = {name: lines_of(name) for name in sources if lines_of(name) > limit_of(name)}
    assert long == {}, "find the second noun in it, or list it in LONG_FILES with the reason"


def lines_of(name: str) -> int:
    return text_of(name).count("\n")


def limit_of(name: str) -> int:
    return TEST_LINES_LIMIT if name.startswith("tests/") else LINES_LIMIT


def test_the_list_of_long_files_is_true() -> None:
    stale = [
        name for name in LONG_FILES if name not in tracked() or lines_of(name) <= limit_of(name)
    ]
    assert stale == []
    assert all(len(reason) > REASON_LETTERS for reason in LONG_FILES.values())


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    assert places(FORBIDDEN[what], tracked()) == []


def test_no_file_holds_a_mail_address() -> None:
    assert places(MAIL, tracked()) == []


def places(pattern: re.Pattern[str], names: tuple[str, ...]) -> list[str]:
    return [
        f"{name}:{number}: {found[0]}"
        for name in names
        if not OTHERS_TEXT.match(name)
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if (found := pattern.search(line))
    ]


def test_every_lint_exception_carries_its_reason() -> None:
    bare = [
        f"{name}:{line}: {comment}"
        for name in python_files()
        for line, comment in comments(text_of(name))
        if not has_reason(comment)
    ]
    assert bare == [], "write: # noqa: CODE  # why it is right here"


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def has_reason(comment: str) -> bool:
    exception = EXCEPTION.search(comment)
    if exception is None:
        return True
    return len(re.sub(r"[^A-Za-z]", "", exception["rest"])) >= REASON_LETTERS


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# noqa: S608", False),
        ("# noqa: S608, E501", False),
        ("# noqa: S608  # the table's name is a constant", True),
        ("# type: ignore[arg-type]", False),
        ("# type: ignore[arg-type]  # upstream's stub lacks None", True),
        ("# pragma: no cover", False),
        ("# pragma: no cover  # only where the disk is full", True),
        ("# an ordinary remark", True),
    ],
)
def test_a_reason_is_told_from_its_absence(comment: str, *, expected: bool) -> None:
    assert has_reason(comment) is expected


def test_the_ten_longest_functions_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    sized = sorted(
        (
            (node.end_lineno - node.lineno + 1, f"{name}:{node.lineno} {node.name}")
            for name in python_files()
            if name.startswith("src/")
            for node in ast.walk(ast.parse(text_of(name)))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
        ),
        reverse=True,
    )
    with capsys.disabled():
        print("\nThe ten longest functions:")
        for lines, place in sized[:10]:
            print(f"{lines:5}  {place}")
    assert sized
