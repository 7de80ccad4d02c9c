"""All queues together."""

from __future__ import annotations

from addon_operator.hooks.call import HookId
from addon_operator.hooks.context import LifecycleContext
from addon_operator.retry import RetryPolicy
from addon_operator.tasks.queue_set import QueueSet
from addon_operator.tasks.task import Reason, RunHook, RunModules, Task
from tests.fakes import clock


def run_of(module: str | None) -> Task:
    return Task(RunHook(HookId(module, "hooks/x"), (LifecycleContext("onStartup"),)), Reason.KUBERNETES)


def test_the_hook_runs_of_a_module_leave_all_queues_and_no_others() -> None:
    async def main() -> dict[str, list[str]]:
        queues = QueueSet(retry=RetryPolicy(1, 1))
        for queue in (queues.main, queues.get("side")):
            queue.add_tail([Task(RunModules(("on",)), Reason.RELOAD_ALL), run_of(None), run_of("on"), run_of("other")])
        assert queues.end_hook_runs("on") == ()
        return {queue.name: [task.description.split(":")[0] for task in queue.listing()] for queue in queues.all()}

    left = ["ModuleRun", "GlobalHookRun", "ModuleHookRun"]
    assert clock.run(main()) == {"main": left, "side": left}
