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
        bound: the schedules and webhooks of its hooks are served.
        before_helm, helm, after_helm: these parts of this run are over.
        has_release: there is something for Helm to do.
    """

    wanted: bool = True
    hooks_loaded: bool = False
    started: bool = False
    watching: bool = False
    synchronized: bool = False
    bound: bool = False
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


RunStep = Literal[
    "load-hooks",
    "onStartup",
    "start-monitors",
    "await-synchronization",
    "start-bindings",
    "beforeHelm",
    "deploy",
    "afterHelm",
    "finish",
]
"""Find the hooks; run those of a binding; serve conversions, watch, and have the hooks run for what exists; wait for
these runs; serve schedules and webhooks; check the values and bring the release up to date; nothing is left to do."""

DeleteStep = Literal["load-hooks", "beforeDeleteHelm", "uninstall", "afterDeleteHelm", "finish"]


def next_run_step(facts: RunFacts) -> RunStep:
    """Returns what comes next in a module run."""
    if not facts.wanted:
        return "finish"
    if not facts.hooks_loaded:
        return "load-hooks"
    if not facts.started:
        return "onStartup"
    if not facts.watching:
        return "start-monitors"
    if not facts.synchronized:
        return "await-synchronization"
    if not facts.bound:
        return "start-bindings"
    if not facts.before_helm:
        return "beforeHelm"
    if facts.has_release and not facts.helm:
        return "deploy"
    return "finish" if facts.after_helm else "afterHelm"


def next_delete_step(facts: DeleteFacts) -> DeleteStep:
    """Returns what comes next in a module delete; beforeDeleteHelm only runs while there is a release."""
    if not facts.hooks_loaded:
        return "load-hooks"
    if facts.release:
        return "uninstall" if facts.before_delete else "beforeDeleteHelm"
    return "finish" if facts.after_delete else "afterDeleteHelm"
