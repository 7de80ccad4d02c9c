"""Keeps what a hook is to be told within bounds: one object after the other instead of one event after the other.

Pure. Used where contexts gather: behind the gate of a binding, and in tasks. Source: contract.md 2.13 (compaction).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from typing import Final

from addon_operator.hooks.bindings import Kubernetes
from addon_operator.hooks.context import Context, ObjectEvent, Tick, allows_failure, group_of

MOST_CONTEXTS: Final = 20_000
"""A task that is joined of others is folded object by object when it would carry more contexts."""


def stricter(earlier: Context, later: Context) -> Context:
    """Chooses of two contexts that tell a hook the same: the later one, unless only the earlier one must not fail."""
    return earlier if allows_failure(later) and not allows_failure(earlier) else later


def bounded(contexts: tuple[Context, ...], most: int = MOST_CONTEXTS) -> tuple[Context, ...]:
    """Folds contexts object by object if there are more than `most` of them.

    For each binding and object stays what a hook needs to know that sees only the end: a change of a new object makes
    it a newer new object, a deletion outlives what came before it, and what comes after a deletion stands beside it.
    Groups and schedules keep one context each. What stays has the place of its last event.

    There may be more than `most` even so: up to two for each object of each binding.
    """
    return contexts if len(contexts) <= most else _fold_objects(contexts)


def _fold_objects(contexts: Iterable[Context]) -> tuple[Context, ...]:
    kept: dict[Hashable, Context] = {}
    number_of = _Numbers()
    for place, context in enumerate(contexts):
        match context:
            case ObjectEvent() | Tick() if group := group_of(context):
                kept[group] = stricter(kept.pop(group, context), context)
            case Tick(binding=binding):
                kept.pop(binding, None)
                kept[binding] = context
            case ObjectEvent():
                _keep_event(kept, (number_of(context.binding), context.namespace, context.name), context)
            case _:
                kept[place] = context
    return tuple(kept.values())


def _keep_event(kept: dict[Hashable, Context], about: Hashable, event: ObjectEvent) -> None:
    """Notes an event of an object, whose last deletion and last presence are kept apart."""
    present, gone = (about, "present"), (about, "gone")
    before = kept.pop(present, None)
    if event.watch_event == "Deleted":
        kept.pop(gone, None)
        kept[gone] = event
    elif isinstance(before, ObjectEvent) and before.watch_event == "Added":
        kept[present] = dataclasses.replace(event, watch_event="Added")
    else:
        kept[present] = event


class _Numbers:
    """Numbers bindings, equal ones alike: they hold dicts, so they cannot be keys."""

    def __init__(self) -> None:
        self._distinct: list[Kubernetes] = []
        self._seen: dict[int, int] = {}

    def __call__(self, binding: Kubernetes) -> int:
        number = self._seen.get(id(binding))
        if number is None:
            if binding not in self._distinct:
                self._distinct.append(binding)
            number = self._seen[id(binding)] = self._distinct.index(binding)
        return number
