"""Module directories as they are on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from addon_operator.errors import ModuleError
from addon_operator.modules.loader import ModuleLoader, Scan


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def loader(root: Path, *directories: str, strict: bool = False) -> ModuleLoader:
    return ModuleLoader(
        modules_dirs=[root / name for name in directories or ("modules",)],
        global_hooks_dir=root / "global-hooks",
        default_order=1,
        strict_values=strict,
    )


def scan(root: Path, *directories: str) -> Scan:
    return loader(root, *directories).scan()


def test_order_names_and_contents(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "modules/values.yaml": "global: {a: 1}\nsecondEnabled: true\nsecond: {x: 1}\n",
            "modules/020-second/values.yaml": "second: {z: 2}\n",
            "modules/020-second/Chart.yaml": "name: any\n",
            "modules/020-second/crds/x.yaml": "",
            "modules/010-first/templates/x.yaml": "",
            "modules/010-first/hooks/x.sh": "",
            "modules/third/README.md": "",
            "modules/.git/config": "",
            "modules/README.md": "",
        },
    )
    found = scan(tmp_path)
    assert [(module.order, module.name) for module in found.modules] == [(1, "third"), (10, "first"), (20, "second")]
    third, first, second = found.modules
    assert (second.has_chart, second.has_templates, second.has_crds, second.has_release) == (True, False, True, True)
    assert (first.has_chart, first.has_templates, first.has_hooks, first.has_release) == (False, True, True, True)
    assert not third.has_release
    assert [flag.place for flag in second.flags] == [f"{tmp_path}/modules/values.yaml:2"]
    assert [layer.value for layer in second.section.static] == [{"x": 1}, {"z": 2}]
    assert [layer.value for layer in found.global_section.static] == [{"a": 1}]
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("chart", "version"),
    [
        pytest.param("version: 1.2.3\n", "1.2.3", id="version"),
        pytest.param("version: 1.0\n", "1.0", id="number"),
        pytest.param("name: any\n", "", id="none"),
        pytest.param("version: [", "", id="not YAML, which helm refuses"),
        pytest.param("[version]\n", "", id="no map, which helm refuses"),
    ],
)
def test_the_version_of_a_module_is_that_of_its_chart(tmp_path: Path, chart: str, version: str) -> None:
    write(tmp_path, {"modules/a/Chart.yaml": chart, "modules/b/templates/x.yaml": ""})
    assert [module.chart_version for module in scan(tmp_path).modules] == [version, ""]


def test_several_directories_links_and_what_is_skipped(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "one/values.yaml": "global: {a: 1, b: 1}\n",
            "one/010-shared/values.yaml": "",
            "two/values.yaml": "global: {b: 2}\nlinkedEnabled: true\nlinkdEnabled: true\n",
            "two/099-shared/values.yaml": "",
            "elsewhere/linked/values.yaml": "",
            "two/notes.txt": "",
        },
    )
    (tmp_path / "two/030-linked").symlink_to(tmp_path / "elsewhere/linked")
    (tmp_path / "two/040-broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "two/050-ring").symlink_to(tmp_path / "two/050-ring")
    found = scan(tmp_path, "one", "two")
    assert [(module.name, module.order) for module in found.modules] == [("shared", 10), ("linked", 30)]
    assert [layer.value for layer in found.global_section.static] == [{"a": 1, "b": 1}, {"b": 2}]
    texts = "\n".join(found.warnings)
    assert "040-broken: broken symbolic link" in texts
    assert "050-ring: broken symbolic link" in texts
    assert "notes.txt: not a module directory" in texts
    assert "099-shared: module shared is already at" in texts
    assert "two/values.yaml:3: linkdEnabled: there is no module 'linkd'" in texts
    assert "linkedEnabled" not in texts


def test_names_are_those_of_everything_that_is_there(tmp_path: Path) -> None:
    write(tmp_path, {"one/010-plain/values.yaml": "", "one/values.yaml": "", "one/.git/config": "", "two/030-file": ""})
    (tmp_path / "two/020-broken").symlink_to(tmp_path / "nowhere")
    assert loader(tmp_path, "one", "two").names() == {"plain", "broken", "file", "values.yaml"}
    with pytest.raises(ModuleError, match="absent: no such modules directory"):
        loader(tmp_path, "one", "absent").names()


@pytest.mark.parametrize(
    ("files", "text"),
    [
        pytest.param({"modules/a/values.yaml": "a: [1,\n"}, r"modules/a/values.yaml:\d", id="unparsable values.yaml"),
        pytest.param({"modules/a/values.yaml": "aEnabled: 1\n"}, r"modules/a/values.yaml:1", id="wrong type of flag"),
        pytest.param({"modules/module_one/values.yaml": ""}, r"module_one", id="name that camelCase loses"),
        pytest.param(
            {"modules/a/openapi/values.yaml": "type: nonsense\n"}, r"a/openapi/values.yaml", id="schema that is none"
        ),
        pytest.param(
            {"modules/a/openapi/values.yaml": "x-extend: {schema: other.yaml}\ntype: object\n"},
            r"a/openapi/values.yaml",
            id="x-extend that leads nowhere",
        ),
        pytest.param({"modules/a/values.yaml": "a: \xff"}, "not UTF-8", id="not text"),
    ],
)
def test_bad_input_names_the_file(tmp_path: Path, files: dict[str, str], text: str) -> None:
    write(tmp_path, {"modules/good/values.yaml": ""})
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ModuleError, match=text):
        scan(tmp_path)


def test_all_problems_are_told_together(tmp_path: Path) -> None:
    write(tmp_path, {"modules/a/values.yaml": "[", "modules/b/values.yaml": "bEnabled: maybe\n"})
    with pytest.raises(ModuleError) as caught:
        scan(tmp_path)
    assert "modules/a/values.yaml" in str(caught.value)
    assert "modules/b/values.yaml" in str(caught.value)


def test_a_missing_directory_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModuleError, match="no such modules directory; create it or set MODULES_DIR"):
        scan(tmp_path, "absent")


def test_strict_checking_wants_values_yaml(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    with pytest.raises(ModuleError, match=r"modules/values.yaml: missing"):
        loader(tmp_path, strict=True).scan()


def test_an_enabled_file_without_exec_bit_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"modules/a/enabled": "#!/bin/sh\n"})
    scanner = loader(tmp_path)
    found = scanner.scan()
    assert found.modules[0].enabled_script is None
    assert "enabled: not executable" in found.warnings[0]
    assert scanner.scan().warnings == found.warnings


def test_a_second_scan_reads_only_what_changed(tmp_path: Path) -> None:
    write(tmp_path, {"modules/a/values.yaml": "a: {x: 1}\n", "modules/b/values.yaml": "b: {x: 1}\n"})
    scanner = loader(tmp_path)
    before = scanner.scan()
    write(tmp_path, {"modules/b/values.yaml": "b: {x: 22}\n", "modules/c/values.yaml": ""})
    after = scanner.scan()
    assert after.modules[0] is before.modules[0]
    assert [layer.value for layer in after.modules[1].section.static] == [{"x": 22}]
    assert [module.name for module in after.modules] == ["a", "b", "c"]


def test_a_changed_common_file_reaches_its_modules(tmp_path: Path) -> None:
    write(tmp_path, {"modules/values.yaml": "aEnabled: false\n", "modules/a/values.yaml": ""})
    scanner = loader(tmp_path)
    assert [flag.value for flag in scanner.scan().modules[0].flags] == [False]
    write(tmp_path, {"modules/values.yaml": "aEnabled: true\n"})
    assert [flag.value for flag in scanner.scan().modules[0].flags] == [True]
