"""The options of `start`: one for each setting, with its environment variables, kind and default."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypedDict

import click
from click.core import ParameterSource

from addon_operator import settings
from addon_operator.settings import Invalid
from addon_operator.settings.foreign import FOREIGN
from addon_operator.settings.kinds import BOOLEAN
from addon_operator.settings.setting import Setting


class _Switch(TypedDict, total=False):
    is_flag: bool
    flag_value: str


# `--log-no-time` is short for `--log-no-time true`.
_SWITCH: _Switch = {"is_flag": False, "flag_value": "true"}


class _SettingType(click.ParamType[object]):
    """Parses the text of one setting; click stops at the first error, so one is returned, to list all of them."""

    def __init__(self, setting: Setting) -> None:
        self.name = setting.kind.name
        self._setting = setting

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Returns the value; None for an empty text that stands for "not set", `Invalid` for a wrong one."""
        if not value and self._setting.default is None:
            return None
        try:
            return self._setting.kind.parse(value)
        except ValueError as error:
            return Invalid(f"{self._names(param, ctx)}: {error}")

    def _names(self, param: click.Parameter | None, ctx: click.Context | None) -> str:
        flag, variables = f"--{self._setting.flag}", self._setting.variables
        source = ctx.get_parameter_source(param.name) if ctx and param and param.name else None
        if source is not ParameterSource.ENVIRONMENT:
            return f"{flag} ({variables[0]})"
        return f"{next(name for name in variables if os.environ.get(name))} ({flag})"


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Adds an option for each setting to a command, and hidden ones for those of other addon-operators.

    The command gets their values by the names of their fields, as `read` takes them.
    """
    for foreign in FOREIGN:
        option = click.option(f"--{foreign.flag}", foreign.field, hidden=True, envvar=foreign.variable, **_SWITCH)
        command = option(command)
    for row in reversed(settings.TABLE):
        default = f"default {row.default}" if row.default else "no default"
        switch: _Switch = _SWITCH if row.kind is BOOLEAN else {}
        option = click.option(
            *(f"--{flag}" for flag in (row.flag, *row.aliases)),
            row.field,
            type=_SettingType(row),
            envvar=row.variables,
            default=row.default,
            help=f"{row.help} [{', '.join(row.variables)}; {default}]",
            metavar="|".join(row.kind.choices) or row.kind.name.upper(),
            **switch,
        )
        command = option(command)
    return command


def read(values: Mapping[str, object]) -> settings.Settings:
    """Returns the settings that a command with `with_settings` was called with.

    Raises:
        SettingsError: all that is wrong, one line for each setting.
    """
    return settings.check(values, os.environ)
