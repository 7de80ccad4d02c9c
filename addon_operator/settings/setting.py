"""How a field of a dataclass states what it is called on the command line and in the environment. Pure.

The field's type is that of the values of its kind: the type checker compares both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from addon_operator.settings.kinds import Kind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_METADATA: Final = "setting"
_T = TypeVar("_T")
_D = TypeVar("_D", bound="DataclassInstance")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, as users see it.

    Attributes:
        kind: what its text may be.
        variables: environment variables; the first one that is set and not empty wins.
        default: the text that stands for "not set"; None if the setting is required or absent by default.
        help: one sentence for `--help` and the documents.
        flag: the name of the option, without dashes in front.
        aliases: other names of the option.
        field: the name of the field; for a field of a group, `<group>_<field>`.
    """

    kind: Kind[object]
    variables: tuple[str, ...]
    default: str | None
    help: str
    flag: str = ""
    aliases: tuple[str, ...] = ()
    field: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    default: DataclassInstance
    variables: str
    words: Mapping[str, str]


def setting(
    kind: Kind[_T], variables: str, default: str, help_text: str, *, flag: str = "", aliases: tuple[str, ...] = ()
) -> _T:
    """Declares a field that has a value in any case.

    Args:
        kind: what its text may be.
        variables: environment variables, separated by blanks; the first one that is set and not empty wins.
        default: the text that stands for "not set".
        help_text: one sentence.
        flag: the name of the option; the field's, with dashes, if empty.
        aliases: other names of the option.
    """
    declared = Setting(
        kind=kind, variables=tuple(variables.split()), default=default, help=help_text, flag=flag, aliases=aliases
    )
    return dataclasses.field(default=kind.parse(default), metadata={_METADATA: declared})


def optional(kind: Kind[_T], variables: str, help_text: str, *, flag: str = "") -> _T | None:
    """Declares a field that is None unless it is set."""
    declared = Setting(kind=kind, variables=tuple(variables.split()), default=None, help=help_text, flag=flag)
    return dataclasses.field(default=None, metadata={_METADATA: declared})


def required(kind: Kind[object], variables: str, help_text: str) -> Mapping[str, Setting]:
    """Returns the metadata for `dataclasses.field` of a field that has no default."""
    return {_METADATA: Setting(kind=kind, variables=tuple(variables.split()), default=None, help=help_text)}


def group(default: _D, variables: str, **words: str) -> _D:
    """Declares a field that holds a dataclass with settings of its own.

    Args:
        default: its defaults; a number that differs from that of the dataclass is shown to users as well.
        variables: precedes the names of its environment variables.
        words: what replaces `{...}` in its help texts.
    """
    return dataclasses.field(default=default, metadata={_METADATA: _Group(default, variables, words)})


def settings_of(cls: type[DataclassInstance]) -> Iterator[Setting]:
    """Yields the settings that the fields of a dataclass declare, in their order, those of groups included."""
    for field in dataclasses.fields(cls):
        declared = field.metadata.get(_METADATA)
        dashed = field.name.replace("_", "-")
        if isinstance(declared, Setting):
            yield dataclasses.replace(declared, field=field.name, flag=declared.flag or dashed)
        elif isinstance(declared, _Group):
            for member in settings_of(type(declared.default)):
                value: object = getattr(declared.default, member.field)
                same = member.default is None or value == member.kind.parse(member.default)
                yield dataclasses.replace(
                    member,
                    field=f"{field.name}_{member.field}",
                    flag=f"{dashed}-{member.flag}",
                    variables=tuple(f"{declared.variables}_{name}" for name in member.variables),
                    default=member.default if same else str(value),
                    help=member.help.format(**declared.words),
                )


def build(cls: type[_D], values: Mapping[str, object], *, prefix: str = "") -> _D:
    """Returns a dataclass with values by the names that `settings_of` gives its fields; None stands for its default.

    Args:
        cls: the dataclass.
        values: each was made by the kind of its setting.
        prefix: of the names.
    """
    arguments: dict[str, object] = {}
    for field in dataclasses.fields(cls):
        declared = field.metadata.get(_METADATA)
        value = values.get(prefix + field.name)
        if isinstance(declared, _Group):
            arguments[field.name] = build(type(declared.default), values, prefix=f"{prefix}{field.name}_")
        elif value is not None:
            arguments[field.name] = value
    make: Callable[..., _D] = cls
    return make(**arguments)
