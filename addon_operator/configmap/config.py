"""The operator config: which state of the ConfigMap is in force, which newer one waits to be applied.

A new state is parsed and checked when it arrives; a bad one is reported and changes nothing. A good one waits until the
main queue applies it between two tasks. What we wrote ourselves needs no recognising: it is in force already, so the
difference is empty. Source: contract.md 2.8, 3.6.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from addon_operator.configmap.document import ConfigChange, ConfigDocument, diff, empty_document, parse, to_data
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import AddonOperatorError, ConfigMapError
from addon_operator.logs import get_logger
from addon_operator.values.patches import Operation, resolve
from addon_operator.values.store import ValuesStore

log = get_logger("configmap")


class Source(Protocol):
    """Where the ConfigMap is (`source.ConfigMapSource`)."""

    async def read(self) -> Mapping[str, str] | None:
        """Gets its data; None if there is no ConfigMap."""

    async def save(self, mutate: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """Changes its data, on top of whatever is there, and gives what is stored afterwards."""


class OperatorConfig:
    """Holds the state in force and the one that waits.

    Attributes:
        in_force: what values and plan are made of.
        error: why the newest state was refused; None while it is good.
    """

    def __init__(
        self,
        source: Source,
        store: ValuesStore,
        *,
        where: str,
        module_keys: Callable[[], Collection[str]],
        checked_keys: Callable[[ConfigDocument], Collection[str]],
        on_accepted: Callable[[], None],
        on_rejected: Callable[[AddonOperatorError], None],
    ) -> None:
        self.in_force: ConfigDocument = empty_document()
        self.error: AddonOperatorError | None = None
        self.where = where
        self._source = source
        self._store = store
        self._module_keys = module_keys
        self._checked_keys = checked_keys
        self._on_accepted = on_accepted
        self._on_rejected = on_rejected
        self._newest: Mapping[str, str] | None = None
        self._waiting: ConfigDocument | None = None
        self._warned: tuple[str, ...] = ()

    async def load(self) -> None:
        """Reads the ConfigMap at the start and puts it into force; a missing one is empty.

        Raises:
            ConfigMapError: it cannot be used.
            ValuesRejected: its values break the schemas.
            KubeError: it cannot be read.
        """
        data = await self._source.read()
        if data is None:
            log.warning(
                "ConfigMap does not exist: the values of the files are in force; modules that only it enabled are held",
                scope=self.where,
            )
        self._commit(self._parse(data))

    def receive(self, data: Mapping[str, str] | None) -> None:
        """Takes a state of the ConfigMap from the watch; None means that it does not exist."""
        self._newest = data
        self._examine()
        if self.error is not None:
            self._on_rejected(self.error)

    def recheck(self) -> None:
        """Looks again at a state that was refused: modules and schemas may be others by now."""
        if self.error is None:
            return
        said = str(self.error)
        self._examine()
        if self.error is not None and str(self.error) != said:
            self._on_rejected(self.error)

    def apply(self) -> ConfigChange:
        """Puts the waiting state into force.

        Returns:
            What changed; an empty change if nothing waits (any more).

        Raises:
            ValuesRejected: values that were good when the state arrived break the schemas now; nothing changed.
        """
        document, self._waiting = self._waiting, None
        if document is None:
            return diff(self.in_force, self.in_force)
        change = diff(self.in_force, document)
        try:
            self._commit(document)
        except AddonOperatorError as error:
            self.error = self._located(error)
            self._on_rejected(self.error)
            raise
        return change

    def check_writable(self) -> None:
        """Checks that sections can be saved on top of the newest state of the ConfigMap.

        Raises:
            ConfigMapError: it cannot be read.
        """
        self._parse(self._newest)

    async def save(
        self, key: str, section: JsonValue | None, operations: Sequence[Operation], flags: Mapping[str, bool | None]
    ) -> bool:
        """Applies a hook's config patch to the ConfigMap, on top of whatever it holds at that moment.

        What others have changed there meanwhile stays, and comes into force as a change of its own.

        Args:
            key: the section, `global` or a module's.
            section: what the operations make of the section in force, which is what the caller commits; None if it
                stays as it is.
            operations: with pointers that start with the section; empty if only flags change.
            flags: section key -> enable flag to store; None takes it out.

        Returns:
            Whether a flag is another one now than the one that was in force.

        Raises:
            ConfigMapError: the ConfigMap is broken at this moment, so that it cannot be changed safely.
            PatchError: the patch does not fit what the ConfigMap holds now.
            KubeError: it cannot be written.
        """

        def mutate(data: Mapping[str, str]) -> Mapping[str, str]:
            if not operations:
                return to_data(data, {}, flags)
            before = self._parse(data).sections.get(key, {})
            after = resolve(operations, {key: before}, f"config patch on {self.where}").document
            return to_data(data, {key: after.get(key, {}) if isinstance(after, dict) else {}}, flags)

        data = await self._source.save(mutate)
        before = self.in_force.flags
        self.in_force = self.in_force.with_changes({} if section is None else {key: section}, flags)
        flags_changed = self.in_force.flags != before
        self.receive(data)
        return flags_changed

    def _parse(self, data: Mapping[str, str] | None) -> ConfigDocument:
        if data is None:
            return empty_document()
        document = parse(data, where=self.where, known=self._module_keys())
        for warning in document.warnings:
            if warning not in self._warned:
                log.warning("something in the ConfigMap has no effect", reason=warning)
        self._warned = document.warnings
        return document

    def _commit(self, document: ConfigDocument) -> None:
        self._store.commit(self._store.propose_configmap(document.sections, self._checked_keys(document)))
        self.in_force = document

    def _examine(self) -> None:
        """Finds out whether the newest state is good, and lets it wait if it is another one."""
        self.error = self._waiting = None
        try:
            document = self._parse(self._newest)
            self._store.propose_configmap(document.sections, self._checked_keys(document))
        except AddonOperatorError as error:
            self.error = self._located(error)
            return
        if not diff(self.in_force, document).empty:
            self._waiting = document
            self._on_accepted()
            return
        # An empty ConfigMap says what a missing one says, but its silence means something else.
        self.in_force = dataclasses.replace(self.in_force, exists=document.exists)

    def _located(self, error: AddonOperatorError) -> ConfigMapError:
        return error if isinstance(error, ConfigMapError) else ConfigMapError(f"{self.where}: {error}")
