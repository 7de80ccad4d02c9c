"""Which request meets which fault (pure): drawn from the seed, the request and how often it was made."""

from __future__ import annotations

import dataclasses
import json
from typing import Final, Literal

from tests.robustness.plan import stream
from tests.robustness.requests import Call

Kind = Literal[
    "conflict", "expired", "throttled", "error", "cut before", "cut after", "stall", "cut in the middle", "silent"
]
STALL_S: Final = 5.0
_LONGEST_TALK_S: Final = 10.0
_ANY: Final[tuple[Kind, ...]] = ("throttled", "error", "cut before", "cut after", "stall")
_UPDATE: Final[tuple[Kind, ...]] = ("conflict", *_ANY)
_WATCH: Final[tuple[Kind, ...]] = (
    "expired", "throttled", "error", "cut before", "stall", "cut in the middle", "cut in the middle", "silent",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request.

    Attributes:
        kind: `conflict` 409, `expired` 410, `throttled` 429 with Retry-After, `error` 500; `cut before` and `cut after`
            the server has done it, `stall` for 5 s and then as usual. Watches: `cut in the middle`, and `silent`: open,
            without a byte, until the client gives up.
        after_s: how long a watch talks before that.
    """

    kind: Kind
    after_s: float = 0.0


class Faults:
    """Says for each request whether it meets a fault.

    Args:
        seed: the same one gives the same faults to the same requests, in whichever order they come.
        rate: how many of the requests meet one, from 0 to 1.
        watch_rate: how many of the watches.
    """

    def __init__(self, seed: int, *, rate: float = 0.08, watch_rate: float = 0.4) -> None:
        self._seed, self._rate, self._watch_rate = seed, rate, watch_rate

    def meet(self, call: Call, what: str, number: int) -> Fault | None:
        """The fault of the request that is `what` for the `number`th time; mostly None."""
        dice = stream(self._seed, f"{what} #{number}")
        if call.watches:
            kind = dice.choice(_WATCH)
            if dice.random() >= self._watch_rate:
                return None
            return Fault(kind, dice.uniform(0, _LONGEST_TALK_S) if kind in {"silent", "cut in the middle"} else 0.0)
        if dice.random() >= self._rate:
            return None
        return Fault(dice.choice(_UPDATE if call.method in {"PUT", "PATCH"} else _ANY))


def refusal(kind: Kind) -> tuple[int, bytes]:
    """Status and body that the API server would answer with."""
    code, reason = {
        "conflict": (409, "Conflict"),
        "expired": (410, "Expired"),
        "throttled": (429, "TooManyRequests"),
        "error": (500, "InternalError"),
    }[kind]
    body = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": f"{reason}: made up by the robustness test",
    }  # fmt: skip
    return code, json.dumps(body).encode()


def expired_event() -> bytes:
    """What a watch says whose version is gone."""
    return b'{"type":"ERROR","object":' + refusal("expired")[1] + b"}\n"
