"""When what was asked of the API server is asked again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from addon_operator.errors import KubeError
from addon_operator.logs import get_logger
from addon_operator.retry import Backoff, RetryPolicy

_log = get_logger("kube")

_WAIT_FOR_SERVER: Final = RetryPolicy(0.2, 5.0)
# Not 404: a server that is about to start has no pages yet.
_REFUSALS: Final = frozenset({400, 401, 403, 405, 406, 409, 422})
_CONTENTION: Final = RetryPolicy(0.02, 1.0)
_MOST_ATTEMPTS: Final = 10

_T = TypeVar("_T")


async def retry_until_answered(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Asks again until the API server answers, and says in the log that it does so.

    Raises:
        KubeError: it answers, and refuses (4xx), or there are no credentials to ask it with.
    """
    backoff = Backoff(_WAIT_FOR_SERVER, warns_at=1, warns_again_every=10)
    while True:
        try:
            answer = await ask()
        except KubeError as error:
            if error.status in _REFUSALS or error.reason == "Credentials":
                raise
            delay_s = max(backoff.failed(), error.retry_after_s or 0.0)
            log = _log.warning if backoff.take_warning() else _log.debug
            log("waiting for the API server", error=error, reason=error.reason, attempt=backoff.failures)
            await asyncio.sleep(delay_s)
        else:
            if backoff.failures:
                _log.info("the API server answers", attempt=backoff.failures + 1)
            return answer


async def retry_on_conflict(attempt: Callable[[], Awaitable[_T]]) -> _T:
    """Repeats an attempt to read and write an object as long as others write it in between, with growing pauses.

    Raises:
        KubeError: what the attempt raises that is no conflict, or the last conflict of ten.
    """
    for failures in range(1, _MOST_ATTEMPTS):
        try:
            return await attempt()
        except KubeError as error:
            if not error.conflict:
                raise
        await asyncio.sleep(_CONTENTION.delay_s(failures) * random.uniform(0.5, 1.5))  # noqa: S311 -- parts writers
    return await attempt()
