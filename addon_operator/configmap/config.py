"""The operator config: which state of the ConfigMap is in force, which newer one waits to be applied.

A new state is parsed and checked when it arrives; a bad one is reported and changes nothing. A good one waits until the
main queue applies it between two tasks. What we wrote ourselves needs no recognising: it is in force already, so the
difference is empty. Source: contract.md 2.8, 3.6.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from addon_operator.configmap.document import ConfigChange, ConfigDocument, diff, empty_document, parse, to_data
from addon_operator.errors import AddonOperatorError, ConfigMapError
from addon_operator.logs import get_logger
from addon_operator.values.patching import resolve
from addon_operator.values.store import Proposal, StaleProposal, ValuesStore

log = get_logger("configmap")


class ConfigEvents(Protocol):
    """Who acts on new states of the ConfigMap."""

    def config_accepted(self) -> None:
        """A good new state waits to be applied."""

    def config_refused(self, error: AddonOperatorError) -> None:
        """A state cannot be used; the one in force stays."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    """A good state: its document, which sections were checked, and the proposed values."""

    document: ConfigDocument
    keys: frozenset[str]
    proposal: Proposal


class OperatorConfig:
    """Holds the state in force and the one that waits.

    Attributes:
        in_force: what values and plan are made of.
        error: why the newest state was refused; None while it is good.
    """

    def __init__(
        self,
        store: ValuesStore,
        *,
        where: str,
        module_keys: Callable[[], Collection[str]],
        checked_keys: Callable[[ConfigDocument], Collection[str]],
        events: ConfigEvents,
    ) -> None:
        """Begins with an empty state.

        Args:
            store: the values that states are made of.
            where: the ConfigMap, as messages name it.
            module_keys: section keys of the modules that exist.
            checked_keys: the sections to validate if a state were in force.
            events: notified of states that arrive.
        """
        self.in_force: ConfigDocument = empty_document()
        self.error: AddonOperatorError | None = None
        self.where = where
        self._store = store
        self._module_keys = module_keys
        self._checked_keys = checked_keys
        self._events = events
        self._newest: Mapping[str, str] | None = None
        self._waiting: _Checked | None = None
        self._warned: tuple[str, ...] = ()

    def load(self, data: Mapping[str, str] | None) -> None:
        """Puts the state that the operator starts with into force; None means that there is no ConfigMap.

        Raises:
            ConfigMapError: it cannot be used.
            ValuesRejected: its values break the schemas.
        """
        if data is None:
            log.warning(
                "ConfigMap does not exist: the values of the files apply; modules that only it enabled are held",
                config_map=self.where.removeprefix("ConfigMap "),
            )
        self._commit(self._check(self._parse(data)))

    def receive(self, data: Mapping[str, str] | None) -> None:
        """Takes a state of the ConfigMap from the watch; None means that it does not exist."""
        self._newest = data
        self._examine()
        if self.error is not None:
            self._events.config_refused(self.error)

    def recheck(self) -> None:
        """Looks again at a state that was refused: modules and schemas may have changed."""
        if self.error is None:
            return
        reported = str(self.error)
        self._examine()
        if self.error is not None and str(self.error) != reported:
            self._events.config_refused(self.error)

    def apply(self) -> ConfigChange:
        """Puts the waiting state into force.

        Returns:
            What changed; an empty change if nothing waits (any more).

        Raises:
            ValuesRejected: values that were good when the state arrived break the schemas now; nothing changed.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return diff(self.in_force, self.in_force)
        change = diff(self.in_force, waiting.document)
        try:
            self._commit(waiting)
        except AddonOperatorError as error:
            self.error = self._located(error)
            self._events.config_refused(self.error)
            raise
        return change

    def check_writable(self) -> None:
        """Checks that sections can be saved on top of the newest state of the ConfigMap.

        Raises:
            ConfigMapError: it cannot be read.
        """
        self._parse(self._newest)

    def patched(self, data: Mapping[str, str], key: str, proposal: Proposal) -> Mapping[str, str]:
        """Applies what a hook changes to the data that the ConfigMap holds at this moment.

        Args:
            data: what the ConfigMap holds.
            key: the section of the hook's owner, `global` or a module's.
            proposal: what the hook changes.

        Raises:
            ConfigMapError: the data is broken, so that it cannot be changed safely.
            PatchError: the patch does not fit what the data holds.
        """
        if not proposal.config_operations:
            return to_data(data, {}, proposal.config_flags)
        before = self._parse(data).sections.get(key, {})
        after = resolve(proposal.config_operations, {key: before}, f"config patch on {self.where}").document
        section = after.get(key, {}) if isinstance(after, dict) else {}
        return to_data(data, {key: section}, proposal.config_flags)

    def saved(self, key: str, proposal: Proposal, data: Mapping[str, str]) -> bool:
        """Takes what the ConfigMap holds after a hook's change; what others changed in it waits as a new state.

        Returns:
            Whether an enable flag differs now from the one that was in force.
        """
        before = self.in_force.flags
        section = proposal.config_section
        self.in_force = self.in_force.with_changes({} if section is None else {key: section}, proposal.config_flags)
        flags_changed = self.in_force.flags != before
        self.receive(data)
        return flags_changed

    def _parse(self, data: Mapping[str, str] | None) -> ConfigDocument:
        if data is None:
            return empty_document()
        document = parse(data, where=self.where, known=self._module_keys())
        for warning in document.warnings:
            if warning not in self._warned:
                log.warning("part of the ConfigMap has no effect", reason=warning)
        self._warned = document.warnings
        return document

    def _check(self, document: ConfigDocument) -> _Checked:
        keys = frozenset(self._checked_keys(document))
        return _Checked(document, keys, self._store.propose_configmap(document.sections, keys))

    def _commit(self, checked: _Checked) -> None:
        """Commits a checked state; checks it again if values or enable flags have changed since."""
        document = checked.document
        if checked.keys != frozenset(self._checked_keys(document)):
            checked = self._check(document)
        try:
            self._store.commit(checked.proposal)
        except StaleProposal:
            self._store.commit(self._check(document).proposal)
        self.in_force = document

    def _examine(self) -> None:
        """Checks the newest state, and makes it the waiting one if it is good and differs from the one in force."""
        self.error = self._waiting = None
        try:
            checked = self._check(self._parse(self._newest))
        except AddonOperatorError as error:
            self.error = self._located(error)
            return
        if not diff(self.in_force, checked.document).empty:
            self._waiting = checked
            self._events.config_accepted()
            return
        # An empty ConfigMap has the same content as a missing one, but only a missing one holds modules.
        self.in_force = dataclasses.replace(self.in_force, exists=checked.document.exists)

    def _located(self, error: AddonOperatorError) -> ConfigMapError:
        return error if isinstance(error, ConfigMapError) else ConfigMapError(f"{self.where}: {error}")
