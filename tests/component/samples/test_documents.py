"""The documents say what is so: settings, commands, links, and the module that README has people write."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import click
import pytest

from addon_operator import settings
from addon_operator.cli import cli
from addon_operator.errors import HookConfigError
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.parser import parse_config
from addon_operator.settings.foreign import FOREIGN
from addon_operator.settings.setting import Setting
from tests.component.samples.conftest import ROOT, HookBench

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "modules" / "README.md",
        ROOT / "global-hooks" / "README.md",
    ]
)
_LINK = re.compile(r"\]\(([^)#]+)?(?:#([^)]+))?\)")
_COMMAND = re.compile(r"addon-operator ((?:module|global|queue|config|raw|dev|start|version)\b[^`|#\n]*)")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("row", settings.TABLE, ids=lambda row: row.field)
def test_every_setting_is_documented(row: Setting) -> None:
    default = f"`{row.default}`" if row.default else ""
    if row.field == "module_workers":
        default = "number of CPUs"
    choices = f" One of {', '.join(row.kind.choices)}." if row.kind.choices else ""
    variables = " ".join(f"`{name}`" for name in row.variables)
    line = f"| `--{row.flag}` | {variables} | {default} | {row.help}{choices} |"
    assert line in (ROOT / "docs" / "running.md").read_text().splitlines()


def test_every_setting_of_others_is_documented() -> None:
    lines = (ROOT / "docs" / "running.md").read_text().splitlines()
    rows = [f"| `--{foreign.flag}` | `{foreign.variable}` | {foreign.reason} |" for foreign in FOREIGN]
    assert [row for row in rows if row not in lines] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in _LINK.findall(path.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        linked = path.parent / target if target else path
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^a-z0-9 -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_commands_exist(path: Path) -> None:
    for words in _COMMAND.findall(path.read_text()):
        command: click.Command = cli
        for word in words.split():
            if not isinstance(command, click.Group) or not word.isidentifier():
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, words
            command = found
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", words)) <= options | {"--help"}, words


def test_the_module_of_the_readme_works(bench: HookBench, helm: Path, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().split("## A module in five minutes")[1].split("\n## ")[0]
    code = "\n".join(line[8:] for line in section.splitlines() if line.startswith(" " * 8) or not line)
    subprocess.run(["bash", "-euc", code], cwd=tmp_path, check=True, timeout=60)
    hook = tmp_path / "modules" / "060-hello" / "hooks" / "greet.sh"
    assert json.loads(bench.run(hook, arguments=["--config"]).stdout) == {"configVersion": "v1", "beforeHelm": 10}
    done = bench.run(hook, values={"global": {"discovery": {"kubernetesVersion": "v1.36.3"}}, "hello": {}})
    assert done.operations("VALUES_JSON_PATCH_PATH") == [
        {"op": "add", "path": "/hello/greeting", "value": "hello, Kubernetes v1.36.3"}
    ]
    command = [str(helm), "template", "hello", str(hook.parents[1])]
    done_by_helm = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert 'greeting: "not yet"' in done_by_helm.stdout


def _configurations() -> list[str]:
    text = (ROOT / "docs" / "hooks.md").read_text()
    return re.findall(r"^```yaml\n(configVersion.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", _configurations())
def test_configurations_of_hooks_are_valid(text: str) -> None:
    assert parse_config(text, scope="module", hook=HookId("m", "hooks/x.sh")).bindings()


@pytest.mark.parametrize(("heading", "key"), [("### kubernetes", "kubernetes"), ("### schedule", "schedule")])
def test_fields_of_bindings_are_known(heading: str, key: str) -> None:
    section = (ROOT / "docs" / "hooks.md").read_text().split(heading)[1].split("\n#")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    fields = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(fields) >= 6
    with pytest.raises(HookConfigError) as caught:
        parse_config({"configVersion": "v1", key: [dict.fromkeys(fields, None)]}, scope="module", hook=HookId("m", "x"))
    assert "unknown" not in str(caught.value)


def test_the_map_of_the_architecture_shows_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "addon_operator"
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", text))
    assert len(named) > 40
    assert [name for name in sorted(named) if not ((package / name).exists() or (ROOT / name).exists())] == []
