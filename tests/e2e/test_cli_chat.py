"""The terminal chat against scripted servers: what a person sees when connections break."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tertulia.cli import app
from tertulia.config import Settings
from tertulia.terminal.chat import Chat
from tertulia.terminal.client import Refused, Server
from tertulia.terminal.door import NoKey, server_for
from tertulia.terminal.following import TRIES, Lost, wait_s
from tertulia.terminal.screen import Screen
from tests.e2e.scripted_server import (
    KEY,
    RESET,
    Piece,
    Scripted,
    delta,
    done,
    event,
    interrupt,
    meta,
    playing,
    torn,
    until_stopped,
)


class Terminal(io.StringIO):
    """Takes text as a terminal does."""

    def isatty(self) -> bool:
        return True


class Talk:
    """A chat whose waits are counted instead of waited."""

    def __init__(self, script: Scripted, *, live: bool = False) -> None:
        self.out: io.StringIO = Terminal() if live else io.StringIO()
        self.remarks = io.StringIO()
        self.waits: list[float] = []
        self.server = Server(script.url, KEY)
        screen = Screen(self.out, self.remarks)
        self.chat = Chat(self.server, screen, wait=self.waits.append, dice=lambda: 0.5)

    def ask(self, text: str = "Why?") -> bool:
        with self.server:
            return self.chat.ask(text)

    def say(self, *lines: str) -> int:
        with self.server:
            return self.chat.talk(iter(lines))


def test_a_reply_is_shown_word_by_word_on_a_terminal() -> None:
    with playing([meta(), delta(2, "One "), delta(3, "two."), done(4)]) as script:
        talk = Talk(script, live=True)
        assert talk.ask("Count.")
    assert talk.out.getvalue() == "One two.\n"
    assert script.of("POST", "/c_1/messages$")[0].body == {"content": "Count.", "model": "auto"}


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param([], id="a clean end without done"),
        pytest.param([torn], id="a reset"),
        pytest.param([b'id: 3\nevent: delta\ndata: {"text":"tw'], id="a torn block"),
        pytest.param([delta(5, "lost")], id="a gap"),
        pytest.param([delta(2, "One ")], id="an event twice"),
        pytest.param([b"id: 3\nevent: delta\ndata: oops\n\n"], id="no JSON"),
        pytest.param([b"retry: 300\n\n"], id="a draining server"),
    ],
)
def test_a_break_loses_and_repeats_no_word(cut: list[Piece]) -> None:
    begun: list[Piece] = [meta(), delta(2, "One "), *cut]
    with playing(begun, [delta(3, "two "), delta(4, "three."), done(5)]) as script:
        talk = Talk(script)
        assert talk.ask()
    assert talk.out.getvalue() == "One two three.\n"
    resumed = script.of("GET", "/stream")[0]
    assert resumed.headers["Last-Event-ID"] == "2"
    assert resumed.path == "/v1/messages/m_1/stream?attempt=1"


def test_a_post_without_an_answer_is_sent_again_under_its_key() -> None:
    unwell = (503, {"code": "store_unavailable", "detail": "The store is away."})
    with playing(unwell, [meta(), delta(2, "Yes."), done(3)]) as script:
        talk = Talk(script)
        assert talk.ask()
    first, second = script.of("POST", "/messages$")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_a_busy_door_is_told_and_not_knocked_at_again() -> None:
    busy = (503, {"code": "busy", "detail": "Too many people are here."})
    with playing(busy) as script, pytest.raises(Refused, match="Too many people"):
        Talk(script).ask()
    assert len(script.of("POST", "/messages$")) == 1


def test_a_reset_begins_the_text_again() -> None:
    again = [RESET, meta(attempt=2), delta(2, "New."), done(3)]
    with playing([meta(), delta(2, "Old")], again) as script:
        talk = Talk(script)
        assert talk.ask()
    assert talk.out.getvalue() == "New.\n"


def test_a_resume_refused_as_ahead_begins_again() -> None:
    ahead = (409, {"code": "event_id_ahead", "detail": "The newest event is 1."})
    whole = [meta(), delta(2, "All of it."), done(3)]
    with playing([meta(), delta(2, "All")], ahead, whole) as script:
        talk = Talk(script)
        assert talk.ask()
    assert talk.out.getvalue() == "All of it.\n"
    assert "Last-Event-ID" not in script.of("GET", "/stream")[1].headers


def test_an_end_that_was_seen_elsewhere_ends_the_reply() -> None:
    with playing([meta(), delta(2, "So.")], (204, {})) as script:
        talk = Talk(script)
        assert not talk.ask()
    assert talk.out.getvalue() == "So.\n"


def test_a_server_that_stays_away_is_given_up() -> None:
    with playing(*[[torn] for _ in range(TRIES + 1)]) as script:
        talk = Talk(script)
        with pytest.raises(Lost):
            talk.ask()
    assert len(talk.waits) == TRIES


def test_waits_grow_to_ten_seconds_and_obey_the_server() -> None:
    assert [wait_s(n, 0.999999, 0.0) for n in range(1, 9)] == pytest.approx(
        [0.4, 0.8, 1.2, 2, 4, 8, 10, 10], rel=1e-5
    )
    assert wait_s(1, 0.0, 5.0) == 2.5


def test_ctrl_c_stops_the_reply_and_keeps_what_was_said() -> None:
    stream: list[Piece] = [meta(), delta(2, "Long"), interrupt, until_stopped, done(3, "stopped")]
    with playing(stream) as script:
        talk = Talk(script)
        assert not talk.ask()
    assert talk.out.getvalue() == "Long\n"
    assert talk.remarks.getvalue().endswith("(stopped)\n")
    assert script.of("POST", "/v1/messages/m_1/stop$")


def test_a_second_ctrl_c_leaves() -> None:
    with playing([meta(), interrupt, until_stopped, interrupt, until_stopped]) as script:
        with pytest.raises(KeyboardInterrupt):
            Talk(script).ask()
        script.stopped.set()


def test_what_happens_around_a_reply_is_told_in_quiet_lines() -> None:
    queue = b'event: queue\ndata: {"position":3,"estimatedWaitSeconds":4}\n\n'
    notes = meta(model="big", reason="overflow", notices=["context_shortened"])
    pause = event(2, "pause", reason="replica_lost")
    with playing([queue, notes, pause, delta(3, "Yes."), done(4, "length")]) as script:
        talk = Talk(script)
        assert talk.ask()
    assert talk.remarks.getvalue().splitlines() == [
        "(number 3 in the queue, about 4 s)",
        "(big answers: the model you would have had is full)",
        "(older parts of this conversation were left out)",
        "(its engine was lost; it goes on elsewhere)",
        "(cut off at the longest answer allowed)",
    ]


def test_a_refusal_is_shown_instead_of_the_rest() -> None:
    refusal = event(2, "refusal", stage="output", category="malware", text="I won't write that.")
    with playing([meta(), refusal, done(3, "refused")]) as script:
        talk = Talk(script)
        assert not talk.ask()
    assert talk.out.getvalue() == "I won't write that.\n"


def test_a_failure_is_told_with_what_helps() -> None:
    fail = event(2, "fail", code="replica_lost", message="The engine was lost.", retryable=True)
    with playing([meta(), fail]) as script:
        talk = Talk(script)
        assert not talk.ask()
    remark = "! The engine was lost.; try again with /regenerate"
    assert talk.remarks.getvalue().splitlines()[-1] == remark


def test_commands_change_the_model_the_conversation_and_the_reply() -> None:
    reply = [meta(), delta(2, "Yes."), done(3)]
    with playing(list(reply), list(reply), list(reply)) as script:
        talk = Talk(script)
        assert talk.say("a\n", "/model large\n", "/regenerate\n", "/new\n", "b\n", "/quit\n") == 0
    again = script.of("POST", "/v1/messages/m_1/regenerate$")[0]
    assert again.body == {"model": "large"}
    assert script.of("POST", "/c_2/messages$")[0].body == {"content": "b", "model": "large"}


def test_a_reply_that_was_left_running_is_stopped_by_a_command() -> None:
    with playing([meta(), delta(2, "Yes."), done(3)]) as script:
        talk = Talk(script)
        assert talk.say("/stop\n", "a\n", "/stop\n", "/quit\n") == 0
    assert len(script.of("POST", "/v1/messages/m_1/stop$")) == 1
    assert "(there is no reply yet)\n" in talk.remarks.getvalue()
    assert talk.remarks.getvalue().endswith("(stopped; what was said is kept)\n")


def test_a_refused_message_does_not_end_the_chat() -> None:
    budget = (429, {"code": "budget_exhausted", "detail": "Your day is used up."})
    with playing(budget, [meta(), delta(2, "Yes."), done(3)]) as script:
        talk = Talk(script)
        assert talk.say("a\n", "/nonsense\n", "b\n") == 0
    assert "! Your day is used up.\n" in talk.remarks.getvalue()
    assert talk.out.getvalue() == "Yes.\n"


def test_a_reply_can_not_steer_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jfine\r\u202e!"
    with playing([meta(), delta(2, evil), done(3)]) as script:
        talk = Talk(script, live=True)
        assert talk.ask()
    assert talk.out.getvalue() == "]0;owned[2Jfine!\n"


def run(*words: str, typed: str = "", key: str = KEY) -> Result:
    return CliRunner().invoke(
        app, ["chat", *words], input=typed, env={"TERTULIA_API_KEY": key, "NO_COLOR": "1"}
    )


def test_once_in_a_pipe_prints_the_answer_alone() -> None:
    with playing([meta(), delta(2, "Forty-"), delta(3, "two."), done(4)]) as script:
        ended = run("--once", "-", "--url", script.url, typed="What is it?\n")
    assert (ended.exit_code, ended.stdout) == (0, "Forty-two.\n")
    assert script.of("POST", "/messages$")[0].body["content"] == "What is it?\n"


def test_a_wrong_key_is_told_in_one_sentence() -> None:
    with playing() as script:
        ended = run("--once", "Hello", "--url", script.url, key="tk_wrong")
    assert (ended.exit_code, ended.stderr) == (1, "! Sign in first.\n")


def test_where_nobody_listens_the_person_is_told_how_to_start() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ended = run("--url", f"http://127.0.0.1:{probe.getsockname()[1]}", typed="Hello\n")
    assert ended.exit_code == 1
    assert "Is it running? `tertulia serve` starts it" in ended.stderr


def test_the_key_of_this_machine_stays_on_this_machine(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    settings.run_dir.mkdir()
    (settings.run_dir / "local.key").write_text(KEY)
    with server_for(settings, None, None, None) as server:
        assert server.url == "http://127.0.0.1:8000"
    with pytest.raises(NoKey, match="give a key"):
        server_for(settings, "http://tertulia.example", None, None)


def test_a_key_file_without_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    with pytest.raises(NoKey, match="holds no API key"):
        server_for(Settings(), None, tmp_path / "key", None)
