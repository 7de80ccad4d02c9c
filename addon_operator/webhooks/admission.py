"""One admission binding as a route of the server: reads reviews, asks the hook, writes answers.

A hook that fails or is too slow denies the request: what it would have said is not known. The failure policy is for
reviews that never reach it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import AddonOperatorError, BadReply
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Admission
from addon_operator.logs import get_logger
from addon_operator.webhooks.review import AdmissionAnswer, Reviewer, encode_admission, parse_admission

_log = get_logger("webhooks")


@dataclass(frozen=True, slots=True)
class AdmissionRoute:
    """Where reviews for one binding of one hook arrive."""

    hook: HookId
    binding: Admission
    reviewer: Reviewer

    @property
    def timeout_s(self) -> float:
        """How long a review may take here; the API server waits a little longer."""
        return self.binding.timeout_s - min(0.5, self.binding.timeout_s / 10)

    def read(self, body: bytes) -> AdmissionReview:
        """Reads a review.

        Raises:
            InputError: it is none.
        """
        return AdmissionReview(self, parse_admission(body))


@dataclass(frozen=True, slots=True)
class AdmissionReview:
    """One request that waits for a hook's opinion."""

    route: AdmissionRoute
    request: JsonObject = field(repr=False)

    async def answer(self) -> bytes:
        """Asks the hook."""
        route = self.route
        try:
            answer = await route.reviewer.admit(route.hook, route.binding, self.request)
            if answer.patch is not None and route.binding.kind != "kubernetesMutating":
                raise BadReply(
                    f"{route.hook}, binding {route.binding.name}: patch: not possible in {route.binding.kind}"
                )
        except AddonOperatorError as error:
            return self._failed(str(error))
        _log.debug(
            "admission review",
            hook=str(route.hook),
            binding=route.binding.name,
            outcome=_outcome(allowed=answer.allowed),
        )
        return self._encode(answer)

    def late(self) -> bytes:
        """Returns the answer in the place of a hook that is still running: the request is denied."""
        return self._failed(f"no answer within {self.route.timeout_s:g} s")

    def _failed(self, reason: str) -> bytes:
        route = self.route
        _log.error("admission review failed", hook=str(route.hook), binding=route.binding.name, reason=reason)
        return self._encode(AdmissionAnswer(allowed=False, message=f"Hook failed: {reason}"))

    def _encode(self, answer: AdmissionAnswer) -> bytes:
        return encode_admission(str(self.request["uid"]), answer)


@dataclass(frozen=True, slots=True)
class DepartedRoute:
    """Where a binding was served that is gone: the API server may not know that yet, and must not be blocked."""

    timeout_s: float = 1.0

    def read(self, body: bytes) -> AllowedReview:
        """Reads a review.

        Raises:
            InputError: it is none.
        """
        return AllowedReview(str(parse_admission(body)["uid"]))


@dataclass(frozen=True, slots=True)
class AllowedReview:
    """One request that nobody has an opinion about any more."""

    uid: str

    async def answer(self) -> bytes:
        """Allows it."""
        return self.late()

    def late(self) -> bytes:
        """Allows it."""
        return encode_admission(self.uid, AdmissionAnswer(allowed=True))


def _outcome(*, allowed: bool) -> str:
    return "allowed" if allowed else "denied"
