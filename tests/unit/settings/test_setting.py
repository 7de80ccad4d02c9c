"""Fields that state their names, kinds and defaults."""

from __future__ import annotations

import dataclasses

from addon_operator.settings import Settings, WebhookServer
from addon_operator.settings.kinds import DURATION, PORT, TEXT
from addon_operator.settings.setting import build, group, optional, required, setting, settings_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Server:
    port: int = setting(PORT, "LISTEN_PORT", "0", "Port of {whose} server.")
    host: str | None = optional(TEXT, "HOST", "Host.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Example:
    name: str = dataclasses.field(metadata=required(TEXT, "NAME OLD_NAME", "Name."))
    wait_s: float = setting(DURATION, "WAIT", "1m", "Pause.", flag="wait", aliases=("pause",))
    web_server: _Server = group(_Server(port=80), "WEB", whose="the web")
    plain: int = 3


def test_what_users_see_of_a_field() -> None:
    assert [(row.field, row.flag, row.variables, row.default, row.help) for row in settings_of(_Example)] == [
        ("name", "name", ("NAME", "OLD_NAME"), None, "Name."),
        ("wait_s", "wait", ("WAIT",), "1m", "Pause."),
        ("web_server_port", "web-server-port", ("WEB_LISTEN_PORT",), "80", "Port of the web server."),
        ("web_server_host", "web-server-host", ("WEB_HOST",), None, "Host."),
    ]
    assert [row.aliases for row in settings_of(_Example)] == [(), ("pause",), (), ()]


def test_defaults_are_those_of_the_fields() -> None:
    assert _Example(name="x") == _Example(name="x", wait_s=60.0, web_server=_Server(port=80, host=None))


def test_values_by_name_make_the_dataclass() -> None:
    values = {"name": "x", "wait_s": None, "web_server_port": 0, "web_server_host": "h", "plain": 4, "other": 1}
    assert build(_Example, values) == _Example(name="x", web_server=_Server(port=0, host="h"), plain=4)


def test_every_field_of_the_settings_is_a_setting() -> None:
    fields = [field.name for field in dataclasses.fields(Settings)]
    servers = [
        f"{purpose}_webhook_{field.name}"
        for purpose in ("validating", "conversion")
        for field in dataclasses.fields(WebhookServer)
    ]
    grouped = {"validating_webhook", "conversion_webhook", "without_effect"}
    assert sorted(row.field for row in settings_of(Settings)) == sorted({*fields, *servers} - grouped)
