"""Crontabs of `schedule` bindings. Pure; the same in all versions of the format."""

from __future__ import annotations

from addon_operator.documents.fields import Fields
from addon_operator.errors import InputError
from addon_operator.schedule.crontab import Crontab


def crontab(fields: Fields) -> str:
    """Takes the `crontab` of a binding, which must parse."""
    text = fields.text("crontab", required=True)
    if text:
        try:
            Crontab.parse(text)
        except InputError as error:
            fields.fail("crontab", str(error))
    return text
