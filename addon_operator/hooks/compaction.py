"""Drops binding contexts that say nothing a later one does not say: the end of a burst instead of each event.

Pure. Called where contexts gather (behind the gate of a binding, in tasks) and right before a run. Source: contract.md
2.13 (combine, compaction).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from typing import Final

from addon_operator.hooks.context import (
    MOST_IN_A_RUN,
    Context,
    ObjectEvent,
    Synchronization,
    Tick,
    allows_failure,
    group_of,
)

MOST_CONTEXTS: Final = 20_000
"""Contexts are compacted object by object when there are more."""

_OF_BINDINGS: Final = (Synchronization, ObjectEvent, Tick)


def collapse_repeats(contexts: Iterable[Context]) -> tuple[Context, ...]:
    """Keeps one of adjacent contexts that say the same to a hook: of a group, or ticks of one schedule.

    The last one is kept; but if some of them must not fail and others may, the last of those that must not.
    """
    collapsed: list[Context] = []
    for context in contexts:
        if collapsed and _repeats(collapsed[-1], context):
            collapsed[-1] = _stricter(collapsed[-1], context)
        else:
            collapsed.append(context)
    return tuple(collapsed)


def compact(
    contexts: tuple[Context, ...], limit: int = MOST_CONTEXTS, *, maybe_seen: int = MOST_IN_A_RUN
) -> tuple[Context, ...]:
    """Compacts contexts object by object if there are more than `limit` of them.

    What is kept for each binding and object is what a hook needs that sees only the end: a change of a new object makes
    it a newer new object, an object that was created and deleted is forgotten, a deletion outlives the changes before
    it, and what follows a deletion is kept beside it. Groups and schedules keep one context each. What is kept has the
    place of its last event.

    More than `limit` may be kept: up to two for each object of each binding that exists, or that the hook knows.

    Args:
        contexts: in the order of their events.
        limit: up to this many are returned unchanged.
        maybe_seen: how many, from the first one on, the hook may have seen in a run that failed. New objects among them
            are not forgotten, and keep their place.
    """
    return contexts if len(contexts) <= limit else _compact_objects(contexts, maybe_seen)


def _repeats(earlier: Context, later: Context) -> bool:
    if not isinstance(earlier, _OF_BINDINGS) or not isinstance(later, _OF_BINDINGS):
        return False
    if group_of(later):
        return group_of(earlier) == group_of(later)
    return isinstance(later, Tick) and earlier == later


def _stricter(earlier: Context, later: Context) -> Context:
    """Returns the later of two contexts that say the same, unless only the earlier one must not fail."""
    return earlier if allows_failure(later) and not allows_failure(earlier) else later


def _compact_objects(contexts: Iterable[Context], maybe_seen: int) -> tuple[Context, ...]:
    kept: dict[Hashable, Context] = {}
    seen: set[Hashable] = set()
    for place, context in enumerate(contexts):
        match context:
            case ObjectEvent() | Tick() if group := group_of(context):
                kept[group] = _stricter(kept.pop(group, context), context)
            case Tick(binding=binding):
                kept.pop(binding, None)
                kept[binding] = context
            case ObjectEvent():
                key = (context.binding, context.namespace, context.name)
                if place < maybe_seen:
                    seen.add(key)
                _keep_event(kept, key, context, seen=key in seen)
            case _:
                kept[place] = context
    return tuple(kept.values())


def _keep_event(kept: dict[Hashable, Context], key: Hashable, event: ObjectEvent, *, seen: bool) -> None:
    """Keeps an event of an object, whose last deletion and last presence are kept apart."""
    present, deleted = (key, "present"), (key, "deleted")
    before = kept.get(present)
    is_new = isinstance(before, ObjectEvent) and before.watch_event == "Added"
    if event.watch_event == "Deleted":
        kept.pop(present, None)
        if seen or not is_new:
            kept.pop(deleted, None)
            kept[deleted] = event
        return
    if not seen:
        kept.pop(present, None)
    kept[present] = dataclasses.replace(event, watch_event="Added") if is_new else event
