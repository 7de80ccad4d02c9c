"""Which modules run, which are deleted, which releases are purged, and why.

Pure. `enabled` scripts are run by `enablement.py`; their answers come in as facts. Source: contract.md 2.10, 3.2, 3.9.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from addon_operator.modules.module import EnableFlag, Module


@dataclasses.dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """What the `enabled` script of a module said last.

    Attributes:
        enabled: its answer; None if it failed.
        reason: its own words (MODULE_ENABLED_REASON), or the error.
    """

    enabled: bool | None
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a module is enabled, and the chain that led there.

    Attributes:
        chain: all flags that were found, weakest first; the last one decides.
        script: the script's answer, if it was asked.
        enabled: the result.
    """

    chain: tuple[EnableFlag, ...]
    script: ScriptAnswer | None
    enabled: bool

    @property
    def reason(self) -> str:
        """The result in one sentence."""
        if self.script is not None and (self.script.reason or not self.script.enabled):
            words = self.script.reason or "it gives no reason"
            return f"enabled script says {str(self.script.enabled).lower()}: {words}"
        if not self.chain:
            return "disabled: no source enables it"
        flag = self.chain[-1]
        return f"{'enabled' if flag.value else 'disabled'} by {flag}"


@dataclasses.dataclass(frozen=True, slots=True)
class ConvergePlan:
    """What a converge has to do.

    Attributes:
        run: modules to run, in groups of equal order; the members of a group may run side by side.
        delete: disabled modules to delete, in exactly the reverse of the run order.
        purge: releases of ours without a module directory, in reverse name order.
        crds: modules whose CRDs come before everything else.
    """

    run: tuple[tuple[str, ...], ...]
    delete: tuple[str, ...]
    purge: tuple[str, ...]
    crds: tuple[str, ...]


def flag_chain(
    module: Module, *, dynamic: Mapping[str, EnableFlag], config: Mapping[str, EnableFlag]
) -> tuple[EnableFlag, ...]:
    """Lists what the sources say about a module: values files, global hooks' patches, ConfigMap.

    Args:
        module: with the flags of its values files.
        dynamic: section key -> flag set by a global hook's patch.
        config: section key -> flag of the ConfigMap.
    """
    later = [layer[module.key] for layer in (dynamic, config) if module.key in layer]
    return (*module.flags, *later)


def flag_says(chain: Sequence[EnableFlag]) -> bool:
    """Answers what the flags alone decide; nothing said means disabled."""
    return bool(chain) and chain[-1].value


def make_plan(
    modules: Iterable[Module],
    verdicts: Mapping[str, Verdict],
    *,
    alive: Collection[str],
    releases: Collection[str],
    ignored_release: str | None,
) -> ConvergePlan:
    """Turns verdicts into work.

    Args:
        modules: all modules.
        verdicts: one for each of them.
        alive: names of modules that were started in this process and not deleted since.
        releases: names of the releases that carry our mark.
        ignored_release: never purged.
    """
    ordered = sorted(modules, key=lambda module: module.sort_key)
    enabled = [module for module in ordered if verdicts[module.name].enabled]
    disabled = [module for module in ordered if not verdicts[module.name].enabled]
    names = {module.name for module in ordered if module.has_release or not verdicts[module.name].enabled}
    groups = itertools.groupby(enabled, key=lambda module: module.order)
    return ConvergePlan(
        run=tuple(tuple(module.name for module in group) for _, group in groups),
        delete=tuple(m.name for m in reversed(disabled) if m.name in alive or m.name in releases),
        purge=tuple(sorted((name for name in releases if name not in names and name != ignored_release), reverse=True)),
        crds=tuple(module.name for module in enabled if module.has_crds),
    )
