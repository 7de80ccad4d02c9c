"""Keeps what a hook is to be told within bounds: one object after the other instead of one event after the other.

Pure. Used where contexts gather: behind the gate of a binding, and in tasks. Source: contract.md 2.13 (compaction).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from typing import Final

from addon_operator.hooks.context import MOST_IN_A_RUN, Context, ObjectEvent, Tick, allows_failure, group_of

MOST_CONTEXTS: Final = 20_000
"""A task that is joined of others is folded object by object when it would carry more contexts."""


def stricter(earlier: Context, later: Context) -> Context:
    """Chooses of two contexts that tell a hook the same: the later one, unless only the earlier one must not fail."""
    return earlier if allows_failure(later) and not allows_failure(earlier) else later


def bounded(
    contexts: tuple[Context, ...], most: int = MOST_CONTEXTS, *, told: int = MOST_IN_A_RUN
) -> tuple[Context, ...]:
    """Folds contexts object by object if there are more than `most` of them.

    For each binding and object stays what a hook needs to know that sees only the end: a change of a new object makes
    it a newer new object, what came and went is forgotten, a deletion outlives the changes before it, and what comes
    after a deletion stands beside it. Groups and schedules keep one context each. What stays has the place of its last
    event.

    There may be more than `most` even so: up to two for each object of each binding that is there, or that the hook
    knows.

    Args:
        contexts: in the order of their events.
        most: so many are left alone.
        told: so many, from the first one on, the hook may have heard of in a run that failed. What is new among them is
            not forgotten, and keeps its place.
    """
    return contexts if len(contexts) <= most else _fold_objects(contexts, told)


def _fold_objects(contexts: Iterable[Context], told: int) -> tuple[Context, ...]:
    kept: dict[Hashable, Context] = {}
    heard_of: set[Hashable] = set()
    for place, context in enumerate(contexts):
        match context:
            case ObjectEvent() | Tick() if group := group_of(context):
                kept[group] = stricter(kept.pop(group, context), context)
            case Tick(binding=binding):
                kept.pop(binding, None)
                kept[binding] = context
            case ObjectEvent():
                about = (context.binding, context.namespace, context.name)
                if place < told:
                    heard_of.add(about)
                _keep_event(kept, about, context, heard=about in heard_of)
            case _:
                kept[place] = context
    return tuple(kept.values())


def _keep_event(kept: dict[Hashable, Context], about: Hashable, event: ObjectEvent, *, heard: bool) -> None:
    """Notes an event of an object, whose last deletion and last presence are kept apart."""
    present, gone = (about, "present"), (about, "gone")
    before = kept.get(present)
    is_new = isinstance(before, ObjectEvent) and before.watch_event == "Added"
    if event.watch_event == "Deleted":
        kept.pop(present, None)
        if heard or not is_new:
            kept.pop(gone, None)
            kept[gone] = event
        return
    if not heard:
        kept.pop(present, None)
    kept[present] = dataclasses.replace(event, watch_event="Added") if is_new else event
