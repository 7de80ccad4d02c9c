"""Random but valid states of the operator's ConfigMap, one after the other, by seed. Pure.

As in Acto, what may be configured is learned from the schemas: sections of all modules with values within
`openapi/config-values.yaml`, enable and maintenance flags, and the ways in which people edit a ConfigMap: one value, a
whole section, the format only, everything anew, back to how it was.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import yaml

from addon_operator.configmap.document import MAINTENANCE_SUFFIX, NO_RECONCILIATION
from addon_operator.documents.jsondoc import JsonObject
from addon_operator.modules.module import split_directory_name
from addon_operator.values.layers import ENABLED_SUFFIX, GLOBAL, section_key
from tests.robustness.random_values import changed_value, random_value, random_yaml

_REMEMBERED: Final = 5
_MOST_STEPS: Final = 16
_ANEW: Final = 0.04


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One state of the ConfigMap.

    Attributes:
        number: its place in the sequence, from 0.
        edit: how it differs from the one before, in words.
        data: the whole data of the ConfigMap.
        progress: how many steps the operator shall get on before the next state comes.
        anew: the ConfigMap is deleted and created, as by `kubectl replace --force`, instead of changed.
    """

    number: int
    edit: str
    data: Mapping[str, str] = dataclasses.field(repr=False)
    progress: int = 0
    anew: bool = False

    def __str__(self) -> str:
        how = ", deleted and created" if self.anew else ""
        return f"{self.number}: {self.edit}{how}, then {self.progress} steps"


def read_schemas(root: Path) -> dict[str, JsonObject]:
    """Finds what can be configured: section key -> schema of config values, `global` included.

    A module without a schema takes an empty section only.

    Args:
        root: with the directories `modules` and `global-hooks`.
    """
    found = {GLOBAL: _schema(root / "global-hooks")}
    for directory in sorted((root / "modules").iterdir()):
        if directory.is_dir():
            found[section_key(split_directory_name(directory.name, 1)[1])] = _schema(directory)
    return found


def _schema(directory: Path) -> JsonObject:
    path = directory / "openapi" / "config-values.yaml"
    schema = yaml.safe_load(path.read_text()) if path.exists() else None
    return schema if isinstance(schema, dict) else {"type": "object"}


def random_states(
    schemas: Mapping[str, JsonObject], seed: int, *, checkpoint: int = 50, needed: Collection[str] = ()
) -> Iterator[State]:
    """Makes up one state after the other, without end; each is valid.

    Args:
        schemas: section key -> schema of config values.
        seed: the same seed gives the same states.
        checkpoint: after each so many states comes one without maintenance flags: a module in maintenance keeps the
            release that it has, so that what it consists of tells something about the states before.
        needed: section keys of modules that are never switched off, since others cannot be without them.
    """
    editor, random = _Editor(schemas, needed, Random(f"{seed} edits")), Random(f"{seed} pace")
    number = 0
    while True:
        edit = editor.edit() if number else editor.everything()
        if number % checkpoint == checkpoint - 1:
            edit = f"{edit}; {editor.end_maintenance()}"
        yield State(number, edit, editor.keep(), random.randrange(_MOST_STEPS), anew=random.random() < _ANEW)
        number += 1


class _Editor:
    """Edits a ConfigMap, now and then in ways that make no difference."""

    def __init__(self, schemas: Mapping[str, JsonObject], needed: Collection[str], random: Random) -> None:
        self._schemas = schemas
        self._modules = sorted(schemas.keys() - {GLOBAL})
        self._switches = sorted(schemas.keys() - {GLOBAL, *needed})
        self._required = [key for key, schema in sorted(schemas.items()) if schema.get("required")]
        self._random = random
        self._data: dict[str, str] = {}
        self._values: dict[str, JsonObject] = {}
        self._history: deque[tuple[dict[str, str], dict[str, JsonObject]]] = deque(maxlen=_REMEMBERED)

    def keep(self) -> dict[str, str]:
        """Answers the data, with the sections that a schema wants, and remembers it for edits that are taken back."""
        for key in [key for key in self._required if key not in self._values]:
            self._write(key, self._made(key))
        self._history.append((dict(self._data), dict(self._values)))
        return dict(self._data)

    def edit(self) -> str:
        """Makes one random edit; says what it did."""
        weighted = {
            self.one_value: 24,
            self.switch: 20,
            self.section: 12,
            self.format: 10,
            self.maintenance: 6,
            self.several: 6,
            self.global_value: 5,
            self.empty_section: 5,
            self.undo: 4,
            self.everything: 3,
            self.old_flag: 2,
            self.unknown_module: 2,
            self.all_off: 1,
            self.nothing: 1,
        }
        (chosen,) = self._random.choices(list(weighted), list(weighted.values()))
        return chosen()

    def one_value(self) -> str:
        """Changes, adds or takes out one property of a module's section."""
        return self._change(self._random.choice(self._modules))

    def global_value(self) -> str:
        """Changes, adds or takes out one global property."""
        return self._change(GLOBAL)

    def _change(self, key: str) -> str:
        schema = self._schemas[key]
        if not schema.get("properties"):
            return self._write(key, {})
        value = self._values.get(key)
        return self._write(key, self._made(key) if value is None else changed_value(schema, value, self._random))

    def section(self) -> str:
        """Writes a section anew."""
        key = self._random.choice([*self._modules, GLOBAL])
        return self._write(key, self._made(key))

    def empty_section(self) -> str:
        """Empties a section, or takes it out."""
        key = self._random.choice([*self._modules, GLOBAL])
        if self._random.random() < 0.5 or key in self._required:
            self._forget(key)
            return f"no section {key}"
        return self._write(key, {})

    def switch(self) -> str:
        """Switches a module on or off, or leaves it to the other sources."""
        key = self._random.choice(self._switches)
        on = self._data.get(key + ENABLED_SUFFIX, "").strip() == "true"
        return self._flag(key, self._random.choice(("false", "") if on else ("true", "true", "true", "false", "")))

    def _flag(self, key: str, flag: str) -> str:
        if self._data.get(key, "").strip() in {"true", "false"}:
            self._forget(key)
        if flag:
            self._data[key + ENABLED_SUFFIX] = flag + self._random.choice(("", "", "", "\n"))
        else:
            self._data.pop(key + ENABLED_SUFFIX, None)
        return f"{key}{ENABLED_SUFFIX}: {flag or 'not said'}"

    def several(self) -> str:
        """Several of these in one edit."""
        made = [self.one_value, self.switch, self.section, self.switch, self.format, self.maintenance]
        chosen = self._random.sample(made, self._random.randint(2, len(made)))
        return " and ".join(edit() for edit in chosen)

    def format(self) -> str:
        """Writes a section in another way, with the same meaning."""
        if not self._values:
            return self.section()
        key = self._random.choice(sorted(self._values))
        return f"only the format: {self._write(key, self._values[key])}"

    def maintenance(self) -> str:
        """Puts a module into maintenance, or ends it."""
        key = self._random.choice(self._modules) + MAINTENANCE_SUFFIX
        if self._data.get(key, "").strip():
            self._data[key] = ""
        elif self._random.random() < 0.2:
            self._data.pop(key, None)
        else:
            self._data[key] = NO_RECONCILIATION + self._random.choice(("", "\n"))
        return f"{key}: {self._data.get(key, '').strip() or 'none'}"

    def end_maintenance(self) -> str:
        """Ends all maintenance."""
        self._data = {key: text for key, text in self._data.items() if not key.endswith(MAINTENANCE_SUFFIX)}
        return "no maintenance"

    def undo(self) -> str:
        """Goes back to an earlier state."""
        back = self._random.randrange(len(self._history))
        data, values = self._history[-1 - back]
        self._data, self._values = dict(data), dict(values)
        return f"back to the state {back + 1} before"

    def everything(self) -> str:
        """Writes all of it anew."""
        self._data, self._values = {}, {}
        for key in self._switches:
            if self._random.random() < 0.7:
                self._flag(key, self._random.choice(("true", "true", "true", "true", "false")))
        for key in [GLOBAL, *self._modules]:
            if self._random.random() < 0.6:
                self._write(key, self._made(key))
        return "everything"

    def old_flag(self) -> str:
        """Writes a flag in its old form, in the place of the section."""
        key = self._random.choice(self._switches)
        self._forget(key)
        self._data.pop(key + ENABLED_SUFFIX, None)
        self._data[key] = self._random.choice(("true", "false"))
        return f"{key}: {self._data[key]}"

    def unknown_module(self) -> str:
        """Says something about a module that does not exist."""
        name = f"retired{self._random.randrange(3)}"
        edits = {name: "a: 1\n", name + ENABLED_SUFFIX: self._random.choice(("true", "false"))}
        for key, text in edits.items():
            if self._data.pop(key, None) is None:
                self._data[key] = text
        return f"the unknown module {name}"

    def all_off(self) -> str:
        """Switches all modules off."""
        for key in self._switches:
            self._flag(key, "false")
        return "all off"

    def nothing(self) -> str:
        """Leaves nothing in the ConfigMap."""
        self._data, self._values = {}, {}
        return "nothing at all"

    def _made(self, key: str) -> JsonObject:
        value = random_value(self._schemas[key], self._random)
        assert isinstance(value, dict)
        return value

    def _write(self, key: str, value: JsonObject) -> str:
        self._values[key] = value
        self._data[key] = random_yaml(value, self._random)
        return f"{key} with {', '.join(sorted(value)) or 'nothing'}"

    def _forget(self, key: str) -> None:
        self._data.pop(key, None)
        self._values.pop(key, None)


def shorter_sequences(states: Sequence[State]) -> Iterator[Sequence[State]]:
    """The last 1, 2, 4, 8 ... of some states, as long as that leaves any out: which of them is enough for a failure?"""
    length = 1
    while length < len(states):
        yield states[-length:]
        length *= 2
