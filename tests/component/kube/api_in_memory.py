"""The scripted API server without HTTP: for what is tested above the transport, and in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import unquote

import aiohttp

from addon_operator.errors import KubeError
from addon_operator.kube.http_errors import refusal, unreachable
from addon_operator.kube.reachability import Reachability
from tests.component.kube.api import CHUNK_PAUSE_S, JSON, Answer, Asked, Document, Script, Stream

_HOST: Final = "in memory"
# An answer never comes at once: what the client does meanwhile is part of what tests look at.
_LATENCY_S: Final = 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class _Refusal:
    """What `http_errors` reads of an answer."""

    status: int
    reason: str
    headers: Mapping[str, str]


class ApiInMemory(Script):
    """The edge `ApiServer`, from a script; raises what the transport raises for the same answer.

    Unlike the transport it has no credentials to read anew after a 401, and no limit of requests.

    Attributes:
        reachability: as the transport has it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reachability = Reachability()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 30.0,
    ) -> bytes:
        """Plays a step; another one after a 429 or 503 with Retry-After."""
        headers = {"Accept": accept} | ({"Content-Type": content_type} if body is not None else {})
        asked = Asked(method, unquote(path), query or {}, headers, body or b"")
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                while True:
                    try:
                        return await self._whole(asked)
                    except KubeError as error:
                        delay_s = error.retry_after_s
                        until = asyncio.get_running_loop().time() + (delay_s or 0.0)
                        if error.status not in {429, 503} or delay_s is None or until >= (deadline.when() or 0.0):
                            raise
                    await asyncio.sleep(delay_s)
        except TimeoutError as error:
            self.reachability.failed("Timeout")
            message = f"{_name(asked)}: no answer within {timeout_s:g} s"
            raise KubeError(message, status=0, reason="Timeout") from error

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = JSON,
        idle_timeout_s: float,
        answer_within_s: float = 30.0,
    ) -> AsyncGenerator[bytes, None]:
        """Plays a step line by line; silence lasts as long as the client bears it."""
        asked = Asked("GET", unquote(path), query, {"Accept": accept}, b"")
        try:
            async with asyncio.timeout(min(answer_within_s, idle_timeout_s)):
                answer = await self._answer(asked)
        except TimeoutError as error:
            self.reachability.failed("Timeout")
            raise unreachable(_name(asked), _HOST, error) from error
        chunks, then = _parts(answer)
        rest = b""
        for chunk in chunks:
            self.reachability.answered()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
            await asyncio.sleep(CHUNK_PAUSE_S)
        match then:
            case "stays":
                await asyncio.sleep(idle_timeout_s)
                raise unreachable(_name(asked), _HOST, aiohttp.SocketTimeoutError())
            case "breaks":
                raise unreachable(_name(asked), _HOST, aiohttp.ClientPayloadError())
            case "ends":
                return

    async def _whole(self, asked: Asked) -> bytes:
        chunks, then = _parts(await self._answer(asked))
        await asyncio.sleep(CHUNK_PAUSE_S * (len(chunks) - 1))
        match then:
            case "stays":
                await asyncio.Event().wait()
            case "breaks":
                error = unreachable(_name(asked), _HOST, aiohttp.ClientPayloadError())
                self.reachability.failed(error.reason)
                raise error
            case "ends":
                pass
        return b"".join(chunks)

    async def _answer(self, asked: Asked) -> Answer:
        answer = await self.play(asked)
        await asyncio.sleep(_LATENCY_S)
        if not isinstance(answer, Document):
            return answer
        phrase = HTTPStatus(answer.status).phrase
        if answer.content_type != JSON and answer.status in {502, 503, 504}:
            self.reachability.failed(f"{answer.status} {phrase}")
        else:
            self.reachability.answered()
        if answer.status >= 300:
            response = _Refusal(answer.status, phrase, answer.headers)
            raise refusal(_name(asked), response, answer.body, is_secret="/secrets" in asked.path)
        return answer


def _name(asked: Asked) -> str:
    return f"{asked.method} {asked.path}"


def _parts(answer: Answer) -> tuple[tuple[bytes, ...], Literal["ends", "stays", "breaks"]]:
    match answer:
        case Document(body):
            return (body,), "ends"
        case Stream(chunks, then):
            return chunks, then
