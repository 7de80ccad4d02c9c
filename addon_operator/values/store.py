"""All values of the operator: one section for `global` and one for each module, in layers.

Pure. A section is, from bottom to top: static layers, defaults of the config schema, the ConfigMap (this is the
effective config), defaults of the values schema, and what hooks patched in memory (these are the effective values).
Sections are immutable: a change is proposed, validated as a whole, and committed in one step, or refused because
something that it was based on has changed meanwhile. One event loop owns the store; it does not lock.

Not here: reading files, the ConfigMap itself, deciding what a change leads to.

Source: contract.md 2.7, 2.8, 2.9, 5.4.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.errors import AddonOperatorError, ModuleError, ValuesRejected
from addon_operator.values import patches
from addon_operator.values.layers import GLOBAL, Origin, module_name
from addon_operator.values.patches import Operation, OwnedOperations, PatchError
from addon_operator.values.section import Section, SectionSpec

__all__ = ["DynamicFlag", "Proposal", "SectionSpec", "StaleProposal", "ValuesStore"]


class StaleProposal(AddonOperatorError):
    """A section that a proposal is based on has changed since: propose again."""


@dataclasses.dataclass(frozen=True, slots=True)
class DynamicFlag:
    """An enable flag that a global hook set in memory."""

    enabled: bool
    origin: Origin


@dataclasses.dataclass(frozen=True, slots=True)
class Proposal:
    """A valid change that is not in force yet.

    Attributes:
        changed: sections whose effective values change.
        enabled_changed: sections whose dynamic enable flag changes.
        config_section: what the owner's section of the ConfigMap becomes; None if a hook did not change it, and for a
            change of the whole ConfigMap.
        config_operations: what makes `config_section` of the owner's section; pointers start with the section key.
        config_flags: section key -> enable flag to write to the ConfigMap; None removes it.
        sections: for the store: the sections that change.
        flags: for the store: the dynamic flags that change; None unsets one.
        config: for the store: the sections of the whole ConfigMap, if it is replaced.
        based_on: for the store: section key -> the section that the proposal was made from.
    """

    changed: frozenset[str] = frozenset()
    enabled_changed: frozenset[str] = frozenset()
    config_section: JsonValue | None = dataclasses.field(default=None, repr=False)
    config_operations: tuple[Operation, ...] = dataclasses.field(default=(), repr=False)
    config_flags: Mapping[str, bool | None] = dataclasses.field(default_factory=dict)
    sections: Mapping[str, Section] = dataclasses.field(default_factory=dict, repr=False)
    flags: Mapping[str, DynamicFlag | None] = dataclasses.field(default_factory=dict)
    config: Mapping[str, JsonValue] | None = dataclasses.field(default=None, repr=False)
    based_on: Mapping[str, Section] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """One consistent moment of everything.

    `config` holds all sections of the ConfigMap, also those of modules that do not exist (yet).
    """

    sections: Mapping[str, Section]
    config: Mapping[str, JsonValue]
    flags: Mapping[str, DynamicFlag]


class ValuesStore:
    """All sections, each of which is its own revision. Every reader sees the state as of the last commit."""

    def __init__(self, global_: SectionSpec) -> None:
        self._state = _State({GLOBAL: Section(global_)}, {}, {})

    # --- reading

    def config(self, key: str) -> JsonValue:
        """Returns the content of a section in the ConfigMap; `{}` if there is none.

        Raises:
            ModuleError: there is no such section; also raised by all other methods that name one.
        """
        return self._section(key).config

    def has(self, key: str) -> bool:
        """Returns whether there is a section of this key."""
        return key in self._state.sections

    def effective(self, key: str) -> JsonValue:
        """Returns a section's effective values: the effective config, defaults and the patches of hooks, merged."""
        return self._section(key).effective

    def digest(self, key: str) -> str:
        """Returns a digest of a section's effective values: equal if and only if they are."""
        return self._section(key).digest

    def patches(self, key: str) -> tuple[Operation, ...]:
        """Returns the kept operations on a section's values: only add and remove, one for each path, sorted by path."""
        return self._section(key).patches

    def origins(self, key: str) -> Mapping[str, Origin]:
        """Returns where each value of a section came from; computed at this moment.

        Returns:
            JSON pointer inside the section (`/servers/0`) -> origin, for each scalar and each empty map or list of the
            effective values, in their order.
        """
        return self._section(key).origins()

    @property
    def enabled_patches(self) -> Mapping[str, bool]:
        """The enable flags that global hooks set in memory, by section key."""
        return {key: flag.enabled for key, flag in self._state.flags.items()}

    def enabled_origin(self, key: str) -> Origin | None:
        """Returns which hook set a section's dynamic enable flag, and when; None if none did."""
        flag = self._state.flags.get(key)
        return flag.origin if flag else None

    def hook_values(self, key: str, enabled_modules: Sequence[str] | None) -> JsonObject:
        """Returns the document of VALUES_PATH.

        Args:
            key: `global` for a global hook, else the module's section, which then comes beside `global`.
            enabled_modules: module names in run order, for `global.enabledModules`; None leaves it out.

        Source: contract.md 2.4, 2.7.
        """
        document: JsonObject = {name: self.effective(name) for name in (GLOBAL, key)}
        shared = document[GLOBAL]
        if enabled_modules is not None and isinstance(shared, dict):
            document[GLOBAL] = shared | {"enabledModules": list(enabled_modules)}
        return document

    def hook_config_values(self, key: str) -> JsonObject:
        """Returns the document of CONFIG_VALUES_PATH: the ConfigMap only, `{}` for what it does not have.

        Source: contract.md 2.4, 5.4 no. 1.
        """
        return {name: self.config(name) for name in (GLOBAL, key)}

    def helm_values(self, key: str) -> JsonObject:
        """Returns the values for helm: `global` and the module's section, with null for keys that hooks removed.

        Source: contract.md 2.7 "Helm values", 2.12 "Chart defaults".
        """
        return {GLOBAL: self.effective(GLOBAL), key: self._section(key).helm_values()}

    # --- checking

    def check_static(self, keys: Collection[str]) -> tuple[str, ...]:
        """Returns all violations of some sections as they are now.

        Keys that hooks may still add, such as required ones of the schema of values, are no violations yet.
        """
        return tuple(line for key in keys for line in self._section(key).violations(complete=False))

    def check_helm(self, key: str) -> None:
        """Checks whether helm may run for a module.

        Raises:
            ValuesRejected: `global` or the module's section breaks a schema, that of values with `x-required-for-helm`.
        """
        violations = [line for name in dict.fromkeys((GLOBAL, key)) for line in self._section(name).helm_violations()]
        if violations:
            raise ValuesRejected(f"check helm values of {_owner(key)}:", violations)

    # --- changing

    def replace_modules(self, specs: Mapping[str, SectionSpec]) -> None:
        """Puts a newly read set of modules into force.

        Sections that existed keep their patches; new ones get their content from the ConfigMap.

        Args:
            specs: section key -> the content of the files; with the key `global` the global section is replaced, too.
        """
        wanted = {GLOBAL: self._state.sections[GLOBAL].spec} | dict(specs)
        sections = {key: self._respecified(spec) for key, spec in wanted.items()}
        self._state = dataclasses.replace(self._state, sections=sections)

    def is_made_of(self, specs: Mapping[str, SectionSpec]) -> bool:
        """Returns whether `replace_modules` would change nothing."""
        sections = self._state.sections
        return sections.keys() == specs.keys() and all(sections[key].spec is spec for key, spec in specs.items())

    def forget_patches(self, key: str) -> None:
        """Drops what hooks patched in a section: its module was disabled (contract.md 5.4 no. 13)."""
        section = self._section(key)
        if section.patches:
            self._swap({key: dataclasses.replace(section, patches=(), authors={})}, self._state.config, {})

    def propose_configmap(self, sections: Mapping[str, JsonValue], check: Collection[str]) -> Proposal:
        """Proposes a whole new ConfigMap.

        Args:
            sections: section key -> its content; a section that is not there becomes empty.
            check: keys of the sections to validate: `global` and those of the enabled modules.

        Raises:
            ValuesRejected: some of them break their schema; lists all violations.

        Source: contract.md 2.8, 2.9.
        """
        state = self._state
        now = {key: section.with_config(sections.get(key, {})) for key, section in state.sections.items()}
        # Sorted, since the same violations have to give the same message each time.
        ordered = sorted(check, key=lambda key: (key != GLOBAL, key))
        violations = [line for key in ordered for line in self._section(key, now).violations(complete=False)]
        if violations:
            raise ValuesRejected("values are not valid:", violations)
        renewed = {key: section for key, section in now.items() if section is not state.sections[key]}
        return Proposal(
            changed=self._changed(renewed),
            sections=renewed,
            config=dict(sections),
            based_on=state.sections,
        )

    def propose_hook(
        self,
        key: str,
        *,
        values_ops: Sequence[Operation],
        config_ops: Sequence[Operation],
        hook: str,
        at: datetime,
    ) -> Proposal:
        """Proposes what one run of a hook changes: the config patch first, the values patch on its result.

        Args:
            key: the section of the hook's owner: `global` for a global hook.
            values_ops: the values patch.
            config_ops: the config patch.
            hook: the hook's name, for origins; errors do not name it, that is up to the caller.
            at: now, aware.

        Raises:
            ValuesRejected: a patch changes what it must not or does not fit, or the result breaks a schema; lists
                all violations.

        Source: contract.md 2.7.
        """
        old = self._section(key)
        origin = Origin("hook", hook, at=at)
        config, values = _owned(config_ops, values_ops, key)
        configured = old.with_config_patch(config.section, "config patch")
        patched = configured.with_values_patch(values.section, "values patch", origin)
        violations = patched.violations(complete=True) if patched is not old else ()
        if violations:
            raise ValuesRejected("the patched values are not valid:", violations)
        renewed = {} if patched is old else {key: patched}
        flags = self._renewed_flags(values.flags, origin)
        return Proposal(
            changed=self._changed(renewed),
            enabled_changed=frozenset(flags),
            config_section=None if configured is old else configured.config,
            config_operations=tuple(config.section),
            config_flags=config.flags,
            sections=renewed,
            flags=flags,
            based_on={key: old},
        )

    def commit(self, proposal: Proposal) -> None:
        """Puts a proposal in force.

        Raises:
            StaleProposal: a section that it is based on has changed or is gone, or, if it replaces the whole ConfigMap,
                there is a new section; nothing was changed.
        """
        state = self._state
        stale = [key for key, seen in proposal.based_on.items() if state.sections.get(key) is not seen]
        if proposal.config is not None:
            stale += state.sections.keys() - proposal.based_on.keys()
        if stale:
            raise StaleProposal(f"values of {', '.join(sorted(stale))} have changed meanwhile")
        written = {key: section.config for key, section in proposal.sections.items()}
        config = {**state.config, **written} if proposal.config is None else proposal.config
        self._swap(proposal.sections, config, proposal.flags)

    def _swap(
        self,
        sections: Mapping[str, Section],
        config: Mapping[str, JsonValue],
        flags: Mapping[str, DynamicFlag | None],
    ) -> None:
        state = self._state
        self._state = _State(
            sections={**state.sections, **sections},
            config=config,
            flags={key: flag for key, flag in {**state.flags, **flags}.items() if flag is not None},
        )

    def _respecified(self, spec: SectionSpec) -> Section:
        old = self._state.sections.get(spec.key)
        if old is None:
            return Section(spec, self._state.config.get(spec.key, {}))
        return old if old.spec is spec else dataclasses.replace(old, spec=spec)

    def _section(self, key: str, sections: Mapping[str, Section] | None = None) -> Section:
        section = (self._state.sections if sections is None else sections).get(key)
        if section is None:
            raise ModuleError(f"{_owner(key)}: there is no such module")
        return section

    def _changed(self, renewed: Mapping[str, Section]) -> frozenset[str]:
        old = self._state.sections
        return frozenset(key for key, section in renewed.items() if section.digest != old[key].digest)

    def _renewed_flags(self, wanted: Mapping[str, bool | None], origin: Origin) -> Mapping[str, DynamicFlag | None]:
        now = self.enabled_patches
        return {
            key: None if enabled is None else DynamicFlag(enabled, origin)
            for key, enabled in wanted.items()
            if now.get(key) != enabled
        }


def _owner(key: str) -> str:
    return "global values" if key == GLOBAL else f"module {module_name(key)!r}"


def _owned(
    config_ops: Sequence[Operation], values_ops: Sequence[Operation], key: str
) -> tuple[OwnedOperations, OwnedOperations]:
    owned: list[OwnedOperations] = []
    problems: list[str] = []
    for name, operations in (("config patch", config_ops), ("values patch", values_ops)):
        try:
            owned.append(patches.split(operations, key, name))
        except PatchError as error:
            problems.extend(f"{name}: {problem}" for problem in error.problems)
    if problems:
        raise ValuesRejected("its patches cannot be used:", problems)
    config, values = owned
    return config, values
