from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from addon_operator.cli.config import config
from addon_operator.cli.debug_client import page_path
from addon_operator.cli.global_ import global_
from addon_operator.cli.module import module
from addon_operator.cli.output import examples
from addon_operator.cli.queue import queue
from addon_operator.cli.raw import raw


def _leaves() -> Iterator[tuple[str, click.Command]]:
    for group in (queue, global_, module, config):
        for name, command in group.commands.items():
            yield f"{group.name} {name}", command
    yield "raw", raw


COMMANDS = dict(_leaves())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_of_this_very_command_and_names_the_socket(name: str) -> None:
    result = CliRunner().invoke(COMMANDS[name], ["--help"])
    assert result.exit_code == 0
    assert f"\n    addon-operator {name}" in result.output
    assert "DEBUG_UNIX_SOCKET" in result.output


def test_examples_keep_their_lines() -> None:
    @click.command(epilog=examples("first --long", "second"))
    def command() -> None:
        """Does nothing."""

    assert CliRunner().invoke(command, ["--help"]).output.endswith("Examples:\n    first --long\n    second\n")


@pytest.mark.parametrize(
    ("segments", "path"),
    [
        pytest.param(("module", "a-b", "values"), "/module/a-b/values.json", id="plain"),
        pytest.param(("module", "../x y", "values"), "/module/..%2Fx%20y/values.json", id="escaped"),
    ],
)
def test_page_path(segments: tuple[str, ...], path: str) -> None:
    assert page_path(*segments, form="json") == path
