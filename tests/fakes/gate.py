"""An API server in front of another one, that withholds or refuses answers about some kinds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from addon_operator.errors import KubeError
from addon_operator.kube.client import ApiServer
from addon_operator.kube.reachability import Reachability

_NEVER_WITHHELD: Final = frozenset(
    {
        "apiservices", "configmaps", "customresourcedefinitions", "events", "leases", "mutatingwebhookconfigurations",
        "secrets", "validatingwebhookconfigurations",
    }
)  # fmt: skip


class Gate:
    """The edge `ApiServer`; kinds are named by their plural.

    Attributes:
        watches: how many are open, by kind.
        lists: how often objects were listed, by kind.
        withholds: whether lists and watches of hooks get no answer, except for kinds in `answered`.
        answered: see `withholds`.
        unreadable: lists and watches of these kinds are refused: kind -> why.
        unwritable: writes of these kinds are refused.
    """

    def __init__(self, api: ApiServer) -> None:
        self.watches, self.lists = Counter[str](), Counter[str]()
        self.withholds = False
        self.answered: set[str] = set()
        self.unreadable: dict[str, str] = {}
        self.unwritable: set[str] = set()
        self._api = api
        self._opened = asyncio.Event()

    @property
    def reachability(self) -> Reachability:
        """That of the API server behind."""
        return self._api.reachability

    def answer(self, plural: str) -> None:
        """Answers from now on what is asked about a kind, also what has been withheld so far."""
        self.answered.add(plural)
        self.unreadable.pop(plural, None)
        self._wake()

    def answer_all(self) -> None:
        """Withholds and refuses nothing any more."""
        self.withholds = False
        self.unreadable.clear()
        self.unwritable.clear()
        self._wake()

    def refuse(self, plural: str, reason: str) -> None:
        """Refuses lists and watches of a kind from now on, also those that wait."""
        self.unreadable[plural] = reason
        self._wake()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = 30.0,
    ) -> bytes:
        """Sends a request on, if it may pass."""
        plural, is_collection = _asked(path)
        if method == "GET" and is_collection:
            self.lists[plural] += 1
            await self._pass(plural, f"GET {path}", timeout_s)
        elif method != "GET" and plural in self.unwritable:
            raise KubeError(f"{method} {path}: 422 Invalid", status=422, reason="Invalid")
        return await self._api.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
        )

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = "application/json",
        idle_timeout_s: float,
        answer_within_s: float = 30.0,
    ) -> AsyncGenerator[bytes, None]:
        """Opens a watch, if it may be opened."""
        plural, _ = _asked(path)
        if "sendInitialEvents" in query:
            self.lists[plural] += 1
        self.watches[plural] += 1
        lines = self._api.stream(
            path, query=query, accept=accept, idle_timeout_s=idle_timeout_s, answer_within_s=answer_within_s
        )
        try:
            await self._pass(plural, f"GET {path}", answer_within_s)
            async for line in lines:
                yield line
        finally:
            self.watches[plural] -= 1
            await lines.aclose()

    async def _pass(self, plural: str, request: str, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self._is_withheld(plural):
                    await self._opened.wait()
        except TimeoutError:
            self.reachability.failed("Timeout")
            raise KubeError(f"{request}: no answer from the API server", status=0, reason="Timeout") from None
        if (reason := self.unreadable.get(plural)) is not None:
            raise KubeError(f"{request}: 403 Forbidden: {reason}", status=403, reason="Forbidden")

    def _is_withheld(self, plural: str) -> bool:
        if plural in _NEVER_WITHHELD or plural in self.unreadable:
            return False
        return self.withholds and plural not in self.answered

    def _wake(self) -> None:
        self._opened.set()
        self._opened = asyncio.Event()


def _asked(path: str) -> tuple[str, bool]:
    """Returns the kind that a path is about, and whether it is about the collection; empty for other paths."""
    parts = path.strip("/").split("/")
    rest = parts[{"api": 2, "apis": 3}.get(parts[0], len(parts)) :]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return (rest[0], len(rest) == 1) if rest else ("", False)
