"""Which event the work at hand goes back to."""

from __future__ import annotations

import asyncio

from addon_operator.hooks.call import HookId
from addon_operator.hooks.context import LifecycleContext
from addon_operator.logs import event_id
from addon_operator.tasks.task import Reason, RunHook, Task


def task() -> Task:
    return Task(RunHook(HookId(None, "x"), (LifecycleContext("onStartup"),)), Reason.KUBERNETES)


def test_tasks_have_the_event_that_they_follow_from_else_one_of_their_own() -> None:
    assert event_id.current() == ""
    one, other = task(), task()
    assert one.event_id
    assert one.event_id != other.event_id
    with event_id.handling(one.event_id):
        assert event_id.current() == task().event_id == one.event_id
        with event_id.new_event():
            assert task().event_id not in {one.event_id, other.event_id}
        assert event_id.current() == one.event_id
    assert event_id.current() == ""


def test_what_outlives_an_event_leaves_it_and_others_stay_in_it() -> None:
    seen: list[str] = []

    async def stay() -> None:
        seen.append(event_id.current())

    async def outlive() -> None:
        event_id.forget()
        seen.append(event_id.current())

    async def main() -> None:
        with event_id.handling("e"):
            await asyncio.create_task(stay(), name="stay")
            await asyncio.create_task(outlive(), name="outlive")
            seen.append(event_id.current())

    asyncio.run(main())
    assert seen == ["e", "", "e"]
