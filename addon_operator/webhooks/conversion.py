"""One CustomResourceDefinition as a route of the server: objects go through hooks, step by step.

Each step is one run of one hook with all objects that have its version at that moment, whichever they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import AddonOperatorError, BadReply, InputError
from addon_operator.logs import get_logger
from addon_operator.webhooks.review import (
    ConversionAnswer,
    ConversionRequest,
    Reviewer,
    bare,
    encode_conversion,
    parse_conversion,
    plan_conversion,
    settle_converted,
    version_of,
)
from addon_operator.webhooks.table import ConversionStep

_log = get_logger("webhooks")

# The API server waits for 30 s.
_TIMEOUT_S: Final = 29.0


class _CannotConvertError(InputError):
    """The objects cannot be converted: no hook does that, or the one that does says so."""


@dataclass(frozen=True, slots=True)
class ConversionRoute:
    """Where reviews for one definition arrive.

    Attributes:
        steps: pairs of versions without groups -> who converts.
    """

    crd_name: str
    steps: Mapping[tuple[str, str], ConversionStep]
    reviewer: Reviewer

    @property
    def timeout_s(self) -> float:
        """How long a review may take here, all steps together; the API server waits a little longer."""
        return _TIMEOUT_S

    def read(self, body: bytes) -> ConversionReview:
        """Reads a review.

        Raises:
            InputError: it is none.
        """
        return ConversionReview(self, parse_conversion(body))


@dataclass(frozen=True, slots=True)
class ConversionReview:
    """Objects that wait to be converted."""

    route: ConversionRoute
    request: ConversionRequest = field(repr=False)

    async def answer(self) -> bytes:
        """Has hooks convert the objects."""
        name = self.route.crd_name
        try:
            answer = ConversionAnswer(objects=await self._convert())
        except _CannotConvertError as error:
            # What a hook says may quote the object.
            _log.warning("objects cannot be converted", crd=name, outcome="failed")
            answer = ConversionAnswer(failed_message=str(error))
        except AddonOperatorError as error:
            return self._failed(str(error))
        return encode_conversion(self.request.uid, answer)

    def late(self) -> bytes:
        """Returns the answer in the place of a hook that is still running: the conversion has failed."""
        return self._failed(f"no answer within {self.route.timeout_s:g} s")

    async def _convert(self) -> tuple[JsonObject, ...]:
        objects, target = list(self.request.objects), bare(self.request.target)
        try:
            plan = plan_conversion(self.route.steps, sources=map(version_of, objects), target=target)
        except InputError as error:
            raise _CannotConvertError(f"{self.route.crd_name}: {error}") from error
        for pair in plan:
            places = [at for at, item in enumerate(objects) if version_of(item) == pair[0]]
            converted = await self._step(self.route.steps[pair], [objects[at] for at in places])
            for at, item in zip(places, converted, strict=True):
                objects[at] = item
        return tuple(objects)

    async def _step(self, step: ConversionStep, objects: list[JsonObject]) -> tuple[JsonObject, ...]:
        group = self.request.target.rpartition("/")[0]
        api_version = f"{group}/{bare(step.to_version)}"
        request: JsonObject = {"uid": self.request.uid, "desiredAPIVersion": api_version, "objects": list(objects)}
        answer = await self.route.reviewer.convert(
            step.hook, step.binding, from_version=step.from_version, to_version=step.to_version, request=request
        )
        if answer.failed_message:
            raise _CannotConvertError(answer.failed_message)
        try:
            return settle_converted(objects, answer.objects, api_version=api_version)
        except InputError as error:
            raise BadReply(f"{step}: {error}") from error

    def _failed(self, reason: str) -> bytes:
        _log.error("conversion failed", crd=self.route.crd_name, reason=reason)
        return encode_conversion(self.request.uid, ConversionAnswer(failed_message=f"Hook failed: {reason}"))
