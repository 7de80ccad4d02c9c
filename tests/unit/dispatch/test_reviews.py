"""What the API server asks, and how a hook's answer or failure comes back to it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from addon_operator.dispatch.reviews import HookReviewer
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.errors import BadReply, HookError, HookFailed, HookUnreachable
from addon_operator.hooks.call import Changes, HookId
from addon_operator.hooks.config.model import HookConfig
from addon_operator.hooks.context import Convert, Review
from addon_operator.hooks.effects import Run
from addon_operator.hooks.hook import Hook, LoadedHooks
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.registry import ModuleRegistry
from tests.fakes.reviewer import admission, conversion

ID = HookId("m", "hooks/x")
HOOK = Hook(ID, Path("/hooks/x"), HookConfig("v1"))
GATE, CONVERSION = admission("a.b.example", timeout_s=7), conversion("x.example", ("v1", "v2"))
REQUEST: JsonObject = {"uid": "1", "desiredAPIVersion": "example/v2", "objects": [{}]}


class Answers:
    """Hooks that answer with these bytes, or fail.

    Attributes:
        changes: what their runs change.
        told: who was said to have changed something.
    """

    def __init__(self, answer: bytes | HookFailed, *, changes: Changes = Changes()) -> None:  # noqa: B008 -- frozen
        self.answer, self.changes = answer, changes
        self.told: list[tuple[HookId, Changes]] = []
        self.runs: list[Run] = []
        self.metrics = Metrics()

    @property
    def counted(self) -> dict[str, str]:
        """Outcome -> how many reviews, by the metric."""
        lines = self.metrics.render().decode().splitlines()
        found = (re.fullmatch(r'.*webhook_reviews_total{.*outcome="(\w+)".*} (\d+)(?:\.0)?', line) for line in lines)
        return {match[1]: match[2] for match in found if match}

    def values_changed(self, hook: HookId, changes: Changes) -> None:
        self.told.append((hook, changes))

    async def review(self, hook: Hook, run: Run) -> tuple[Changes, bytes]:
        self.runs.append(run)
        if isinstance(self.answer, HookFailed):
            raise self.answer
        return self.changes, self.answer


def reviewer(runs: Answers) -> HookReviewer:
    registry = ModuleRegistry()
    registry.state("m").hooks = LoadedHooks((HOOK,))
    return HookReviewer(hooks=runs, registry=registry, events=runs, metrics=runs.metrics.hook_runs)


def admit(runs: Answers, hook: HookId = ID) -> bool:
    return asyncio.run(reviewer(runs).admit(hook, GATE, REQUEST)).allowed


def convert(runs: Answers, hook: HookId = ID) -> tuple[JsonObject, ...]:
    asked = reviewer(runs).convert(hook, CONVERSION, from_version="v1", to_version="v2", request=REQUEST)
    return tuple(asyncio.run(asked).objects)


Ask: TypeAlias = Callable[..., object]


def test_an_admission_is_asked_and_answered() -> None:
    runs = Answers(b'{"allowed": true}')
    assert admit(runs)
    assert runs.runs == [Run((Review(GATE, REQUEST),), queue="", response="admission", timeout_s=7)]
    assert runs.counted == {"allowed": "1"}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(b'{"allowed": false, "message": "no"}', "denied", id="denied"),
        pytest.param(b"", "error", id="no answer"),
    ],
)
def test_how_admissions_end_is_counted(answer: bytes, outcome: str) -> None:
    runs = Answers(answer)
    with contextlib.suppress(BadReply):
        assert not admit(runs)
    assert runs.counted == {outcome: "1"}


def test_a_conversion_is_asked_and_answered() -> None:
    runs = Answers(b'{"convertedObjects": [{"kind": "X"}]}')
    assert convert(runs) == ({"kind": "X"},)
    (run,) = runs.runs
    assert run.contexts == (Convert(CONVERSION, "v1", "v2", REQUEST),)
    assert (run.queue, run.response) == ("", "conversion")
    assert runs.counted == {"converted": "1"}


@pytest.mark.parametrize(
    ("ask", "file"),
    [(admit, "ADMISSION_RESPONSE_PATH"), (convert, "CONVERSION_RESPONSE_PATH")],
    ids=["admission", "conversion"],
)
@pytest.mark.parametrize("answer", [b"", b"yes", b"[]"], ids=["empty", "no JSON", "no map"])
def test_an_answer_that_is_none_names_hook_and_file(ask: Ask, file: str, answer: bytes) -> None:
    with pytest.raises(BadReply, match=f"^{re.escape(str(ID))}: {file}: "):
        ask(Answers(answer))


@pytest.mark.parametrize(
    ("changes", "told"),
    [(Changes(), []), (Changes(values=True), [(ID, Changes(values=True))])],
    ids=["nothing changed", "values"],
)
@pytest.mark.parametrize(
    ("ask", "answer"), [(admit, b'{"allowed": true}'), (convert, b'{"convertedObjects": []}')], ids=["admit", "convert"]
)
def test_what_a_review_changes_is_told(
    ask: Ask, answer: bytes, changes: Changes, told: list[tuple[HookId, Changes]]
) -> None:
    runs = Answers(answer, changes=changes)
    ask(runs)
    assert runs.told == told


@pytest.mark.parametrize("ask", [admit, convert])
def test_a_failed_hook_gives_no_answer_and_what_it_printed_is_for_the_log(ask: Ask) -> None:
    with pytest.raises(HookError, match=r"^exit code 1 \(see the operator's log\)$"):
        ask(Answers(HookFailed("exit code 1", stderr=": token=s3cret")))


@pytest.mark.parametrize("ask", [admit, convert])
def test_a_hook_that_is_gone_cannot_be_asked(ask: Ask) -> None:
    with pytest.raises(HookUnreachable, match=r"^global hook hooks/x: is not served any more$"):
        ask(Answers(b""), HookId(None, "hooks/x"))
