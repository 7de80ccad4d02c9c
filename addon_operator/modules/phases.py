"""The single next step of a module run.

Pure. The runner does exactly one step, then asks again; a run that was interrupted needs no recovery, because the next
one starts from the facts. Source: contract.md 3.3, 3.4.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

ModuleBinding = Literal["onStartup", "beforeHelm", "afterHelm", "beforeDeleteHelm", "afterDeleteHelm"]


@dataclasses.dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known in the middle of a module run.

    Attributes:
        wanted: the module is still enabled.
        hooks_loaded: the `--config` of its hooks is known.
        started: its onStartup hooks have succeeded since it was enabled.
        watching: the monitors of its hooks run since then, and their Synchronization was asked for.
        synchronized: every Synchronization that is waited for is over, or cannot be had now.
        reacting: the schedules and webhooks of its hooks are served.
        before_helm, helm, after_helm: these parts of this run are over.
        has_release: there is something for Helm to do.
    """

    wanted: bool = True
    hooks_loaded: bool = False
    started: bool = False
    watching: bool = False
    synchronized: bool = False
    reacting: bool = False
    before_helm: bool = False
    helm: bool = False
    after_helm: bool = False
    has_release: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteFacts:
    """What is known in the middle of a module delete; `release` means that the release exists."""

    hooks_loaded: bool = False
    release: bool = False
    before_delete: bool = False
    after_delete: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LoadHooks:
    """Find the module's hooks and read their configuration."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunHooks:
    """Run all hooks of one binding in order."""

    binding: ModuleBinding


@dataclasses.dataclass(frozen=True, slots=True)
class StartMonitors:
    """Serve the conversions of the hooks, begin to watch for them, and have them run for what exists already."""


@dataclasses.dataclass(frozen=True, slots=True)
class AwaitSynchronization:
    """Wait until the hooks have run for what existed already."""


@dataclasses.dataclass(frozen=True, slots=True)
class StartReactions:
    """Start the schedules and all webhooks of the hooks."""


@dataclasses.dataclass(frozen=True, slots=True)
class Deploy:
    """Check the values and bring the release up to date."""


@dataclasses.dataclass(frozen=True, slots=True)
class Uninstall:
    """Remove the release."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do."""


RunStep = LoadHooks | RunHooks | StartMonitors | AwaitSynchronization | StartReactions | Deploy | Finish
DeleteStep = LoadHooks | RunHooks | Uninstall | Finish


def next_run_step(facts: RunFacts) -> RunStep:
    """Answers what comes next in a module run."""
    if not facts.wanted:
        return Finish()
    if not facts.hooks_loaded:
        return LoadHooks()
    if not facts.started:
        return RunHooks("onStartup")
    if not facts.watching:
        return StartMonitors()
    if not facts.synchronized:
        return AwaitSynchronization()
    if not facts.reacting:
        return StartReactions()
    if not facts.before_helm:
        return RunHooks("beforeHelm")
    if facts.has_release and not facts.helm:
        return Deploy()
    return Finish() if facts.after_helm else RunHooks("afterHelm")


def next_delete_step(facts: DeleteFacts) -> DeleteStep:
    """Answers what comes next in a module delete; beforeDeleteHelm only runs while there is a release."""
    if not facts.hooks_loaded:
        return LoadHooks()
    if facts.release:
        return Uninstall() if facts.before_delete else RunHooks("beforeDeleteHelm")
    return Finish() if facts.after_delete else RunHooks("afterDeleteHelm")
