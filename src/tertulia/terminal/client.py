"""A running Tertulia seen from a program: the few calls that a terminal chat needs.

It must never send a key to a place the user did not name, nor repeat a key in an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import httpx2

# Two lost pings (one every 15 s) are a dead line.
_SILENCE_S = 40.0
_CALL_S = 15.0
# While a file comes or goes; what is sent is looked at and stored before it is answered.
_SILENT = httpx2.Timeout(_CALL_S, read=60.0, write=60.0)
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class NobodyThere(Exception):
    """No server answered at this address."""


class Refused(Exception):
    """The server said no; the message is for a person, `code` for a program."""

    def __init__(self, sentence: str, code: str):
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that makes a reply. The same key is the same reply, however often it is sent."""

    path: str
    body: dict[str, Any]
    key: str


class Server:
    """One address and one credential. Close it, or use it in a `with`."""

    def __init__(self, url: str, key: str, transport: httpx2.BaseTransport | None = None):
        self.url = url.rstrip("/")
        self._http = httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(_CALL_S, connect=5.0),
            transport=transport,
            # A proxy of the environment knows nothing of this machine's own addresses.
            trust_env=not is_loopback(url),
            follow_redirects=False,
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def me(self) -> dict[str, Any]:
        """The account that the key belongs to."""
        return self._call("GET", "/v1/me")

    def models(self) -> list[dict[str, Any]]:
        """What can be asked for, each with its state."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/models")["data"]
        return found

    def fleet(self) -> dict[str, Any]:
        """How the fleet is; Refused for who is no administrator."""
        return self._call("GET", "/v1/admin/fleet")

    def sign_in_link(self) -> str:
        """An address that signs the key's owner in, once; Refused for who is no administrator."""
        return f"{self.url}/#signin={self._call('POST', '/v1/admin/sign-in-links', {})['token']}"

    def new_conversation(self, key: str) -> str:
        """The id of a new conversation; the same key gives the same one."""
        made = self._call("POST", "/v1/conversations", {}, {"Idempotency-Key": key})
        return str(made["id"])

    def reply_of(self, ask: Ask) -> str:
        """The id of the reply to `ask`, without following it."""
        headers = {"Idempotency-Key": ask.key}
        return str(self._call("POST", ask.path, ask.body, headers)["messageId"])

    def stop(self, reply_id: str) -> None:
        """Ends a running reply; what was said is kept."""
        self._call("POST", f"/v1/messages/{quote(reply_id, safe='')}/stop")

    def ask(self, ask: Ask) -> AbstractContextManager[httpx2.Response]:
        """Begins a reply, or attaches to it, as a stream."""
        return self._http.stream(
            "POST",
            ask.path,
            json=ask.body,
            headers={"Idempotency-Key": ask.key, "Accept": "text/event-stream"},
            timeout=httpx2.Timeout(_CALL_S, read=_SILENCE_S),
        )

    def resume(
        self, reply_id: str, last: int, attempt: int | None
    ) -> AbstractContextManager[httpx2.Response]:
        """Goes on with a reply after event `last` of `attempt`."""
        headers = {"Accept": "text/event-stream"}
        query = {}
        if last:
            headers["Last-Event-ID"] = str(last)
            if attempt is not None:
                query["attempt"] = str(attempt)
        return self._http.stream(
            "GET",
            f"/v1/messages/{quote(reply_id, safe='')}/stream",
            params=query,
            headers=headers,
            timeout=httpx2.Timeout(_CALL_S, read=_SILENCE_S),
        )

    @contextmanager
    def export(self, password: str | None) -> Iterator[httpx2.Response]:
        """Everything of the key's owner, as a stream. Without a password an administrator signs in
        for it: a session that has just begun needs none."""
        if password is not None:
            with self._http.stream(
                "POST", "/v1/me/export", json={"password": password}, timeout=_SILENT
            ) as answer:
                yield answer
            return
        token = self._call("POST", "/v1/admin/sign-in-links", {})["token"]
        with httpx2.Client(
            base_url=self.url,
            headers={"Origin": self.url},
            timeout=_SILENT,
            trust_env=not is_loopback(self.url),
        ) as browser:
            signed_in = browser.post("/v1/auth/link", json={"token": token})
            if signed_in.status_code >= 300:
                raise refusal(signed_in)
            with browser.stream("POST", "/v1/me/export") as answer:
                yield answer
            browser.post("/v1/auth/logout")

    def begin_import(self, file: BinaryIO) -> dict[str, Any]:
        """Sends a file to be imported; the report so far."""
        return self._call("POST", "/v1/imports", content=file)

    def import_report(self, import_id: str) -> dict[str, Any]:
        """How far an import is."""
        return self._call("GET", f"/v1/imports/{quote(import_id, safe='')}")

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        content: BinaryIO | None = None,
    ) -> dict[str, Any]:
        try:
            if content is None:
                response = self._http.request(method, path, json=body, headers=headers)
            else:
                response = self._http.request(method, path, content=content, timeout=_SILENT)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise NobodyThere(f"{self.url} does not answer ({_kind(error)})") from None
        if response.status_code >= 300:
            raise refusal(response)
        value = json_object(response.content)
        if value is None:
            raise Refused(f"{self.url} answers, but is not Tertulia", "not_tertulia")
        return value


def refusal(response: httpx2.Response) -> Refused:
    """What a response that has been read says no with."""
    problem = json_object(response.content) or {}
    inner = problem.get("error")
    if isinstance(inner, dict):
        problem = {"detail": inner.get("message"), "code": inner.get("code"), **inner}
    sentence = problem.get("detail")
    code = problem.get("code")
    if not isinstance(sentence, str) or not isinstance(code, str):
        return Refused(f"the server answered {response.status_code}", "unknown")
    return Refused(sentence, code)


def is_loopback(url: str) -> bool:
    """Whether an address is this machine itself."""
    try:
        return (urlsplit(url).hostname or "") in _LOOPBACK
    except ValueError:
        return False


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object in `text`; None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _kind(error: Exception) -> str:
    return "refused" if isinstance(error, httpx2.ConnectError) else type(error).__name__
