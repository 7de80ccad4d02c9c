"""Runs hooks for admission and conversion reviews of the API server.

Reviews wait in no queue, since the API server waits for them. Otherwise their runs and effects are like any others.
Called by the webhook host. Source: contract.md 2.14.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import BadReply, HookError, HookFailed, HookUnreachable, InputError
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.config.model import Admission, Conversion
from addon_operator.hooks.context import Convert, Review
from addon_operator.hooks.effects import Run
from addon_operator.hooks.hook import Hook
from addon_operator.logs.event_id import new_event
from addon_operator.metrics.hook_runs import HookRunMetrics
from addon_operator.modules.registry import ModuleRegistry
from addon_operator.webhooks.review import (
    AdmissionAnswer,
    ConversionAnswer,
    parse_admission_response,
    parse_conversion_response,
)

T = TypeVar("T")


class ReviewRuns(Protocol):
    """Runs hooks (`hooks.effects.HookRuns`)."""

    async def review(self, hook: Hook, run: Run) -> tuple[Changes, bytes]:
        """As `HookRuns.review`."""


class ReviewEvents(Protocol):
    """Who acts on what hooks change that run in no queue."""

    def values_changed(self, hook: HookId, changes: Changes) -> None:
        """A hook changed values."""


class HookReviewer:
    """Runs hooks for reviews."""

    def __init__(
        self,
        *,
        hooks: ReviewRuns,
        registry: ModuleRegistry,
        events: ReviewEvents,
        metrics: HookRunMetrics,
    ) -> None:
        """Takes its dependencies."""
        self._hooks = hooks
        self._registry = registry
        self._events = events
        self._metrics = metrics

    async def admit(self, hook: HookId, binding: Admission, request: JsonObject) -> AdmissionAnswer:
        """Runs the hook that allows or denies a request.

        Raises:
            HookError: the hook failed, or its answer cannot be used.
        """
        run = Run((Review(binding, request),), queue="", response="admission", timeout_s=binding.timeout_s)
        with self._counted(hook, binding.name) as outcome:
            data = await self._run(hook, run)
            answer = _parsed(hook, "ADMISSION_RESPONSE_PATH", lambda: parse_admission_response(data))
            outcome.append("allowed" if answer.allowed else "denied")
            return answer

    async def convert(
        self, hook: HookId, binding: Conversion, *, from_version: str, to_version: str, request: JsonObject
    ) -> ConversionAnswer:
        """Runs the hook that converts objects to another version.

        Raises:
            HookError: the hook failed, or its answer cannot be used.
        """
        context = Convert(binding, from_version, to_version, request)
        with self._counted(hook, binding.name) as outcome:
            data = await self._run(hook, Run((context,), queue="", response="conversion"))
            answer = _parsed(hook, "CONVERSION_RESPONSE_PATH", lambda: parse_conversion_response(data))
            outcome.append("denied" if answer.failed_message else "converted")
            return answer

    async def _run(self, hook: HookId, run: Run) -> bytes:
        with new_event():
            try:
                changes, data = await self._hooks.review(self._hook(hook), run)
            except HookFailed as error:
                # The output of the hook is in the log; the response is shown to the user who made the request.
                raise HookError(f"{error.brief} (see the operator's log)") from error
            if changes:
                self._events.values_changed(hook, changes)
            return data

    @contextlib.contextmanager
    def _counted(self, hook: HookId, binding: str) -> Iterator[list[str]]:
        outcome: list[str] = []
        try:
            yield outcome
        finally:
            self._metrics.reviewed(
                module=hook.module, hook=hook.name, binding=binding, outcome=outcome[0] if outcome else "error"
            )

    def _hook(self, hook: HookId) -> Hook:
        found = self._registry.find_hook(hook)
        if found is None:
            raise HookUnreachable(f"{hook}: is not served any more")
        return found


def _parsed(hook: HookId, variable: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except InputError as error:
        raise BadReply(f"{hook}: {variable}: {error}") from error
