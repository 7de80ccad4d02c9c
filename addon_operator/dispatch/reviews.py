"""Asks hooks what the API server wants to know: admission and conversion reviews.

Reviews wait in no queue: the API server waits for them. Everything else about the run is as usual, its effects too.
Called by the webhook host. Source: contract.md 2.14.
"""

from __future__ import annotations

from collections.abc import Callable

from addon_operator.errors import BadReply, HookUnreachable, InputError
from addon_operator.hooks.bindings import Admission, Conversion
from addon_operator.hooks.call import HookId
from addon_operator.hooks.context import Convert, Review
from addon_operator.hooks.effects import HookRuns, Run
from addon_operator.hooks.hook import Hook
from addon_operator.jsondoc import JsonObject
from addon_operator.webhooks.review import (
    AdmissionAnswer,
    ConversionAnswer,
    parse_admission_response,
    parse_conversion_response,
)


class HookReviewer:
    """Runs hooks for reviews."""

    def __init__(self, *, hooks: HookRuns, find_hook: Callable[[HookId], Hook | None]) -> None:
        self._hooks = hooks
        self._find_hook = find_hook

    async def admit(self, hook: HookId, binding: Admission, request: JsonObject) -> AdmissionAnswer:
        """Asks whether a request may pass.

        Raises:
            HookError: the hook failed, or its answer cannot be used.
        """
        run = Run((Review(binding, request),), queue="", response="admission", timeout_s=binding.timeout_s)
        answer = await self._hooks.review(self._hook(hook), run)
        try:
            return parse_admission_response(answer)
        except InputError as error:
            raise BadReply(f"{hook}: ADMISSION_RESPONSE_PATH: {error}") from error

    async def convert(
        self, hook: HookId, binding: Conversion, *, from_version: str, to_version: str, request: JsonObject
    ) -> ConversionAnswer:
        """Asks for objects in another version.

        Raises:
            HookError: the hook failed, or its answer cannot be used.
        """
        context = Convert(binding, from_version, to_version, request)
        answer = await self._hooks.review(self._hook(hook), Run((context,), queue="", response="conversion"))
        try:
            return parse_conversion_response(answer)
        except InputError as error:
            raise BadReply(f"{hook}: CONVERSION_RESPONSE_PATH: {error}") from error

    def _hook(self, hook: HookId) -> Hook:
        found = self._find_hook(hook)
        if found is None:
            raise HookUnreachable(f"{hook}: is not served any more")
        return found
