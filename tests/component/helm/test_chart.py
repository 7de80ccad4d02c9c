"""Charts on disk."""

from __future__ import annotations

import gc
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.documents.jsondoc import JsonObject
from addon_operator.documents.yamldoc import YamlError
from addon_operator.errors import ModuleError
from addon_operator.helm.chart import ChartReader, crd_documents, prepare_chart

CRD = "kind: CustomResourceDefinition\nmetadata: {name: %s}\n"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    directory = tmp_path / "010-demo"
    write(directory / "Chart.yaml", "name: demo\nversion: 0.1.0\n")
    write(directory / "templates" / "a.yaml", "{{ .Values.demo.a }}\n")
    return directory


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def pack(path: Path, **files: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


HOOKED = "metadata: {annotations: {helm.sh/hook: %s}}\n"


@pytest.mark.parametrize(
    ("files", "values", "hooks", "install"),
    [
        pytest.param({}, {}, False, False, id="none"),
        pytest.param({"templates/t.yaml": HOOKED % "test"}, {}, True, False, id="a test"),
        pytest.param({"templates/t.yaml": HOOKED % '"post-install,test"'}, {}, True, True, id="for an installation"),
        pytest.param({"README.md": "pre-install"}, {}, False, False, id="a word"),
        pytest.param({"README.md": "helm.sh/hook: pre-install"}, {}, True, False, id="in a README"),
        pytest.param(
            {"templates/t.yaml": HOOKED % "test" + "# helm.sh/hook-note: pre-install\n"}, {}, True, False, id="a note"
        ),
        pytest.param({}, {"demo": {"note": "helm.sh/hook"}}, True, False, id="a word in values"),
        pytest.param({}, {"demo": {"helm.sh/hook": "test,pre-install"}}, True, True, id="in values"),
    ],
)
def test_tells_hooks_for_the_installation_from_others(
    module: Path, files: dict[str, str], values: JsonObject, *, hooks: bool, install: bool
) -> None:
    for name, text in files.items():
        write(module / name, text)
    traits = ChartReader().traits(module, "digest", values)
    assert (traits.has_hooks, traits.has_install_hooks) == (hooks, install)


def test_reads_the_schema_again_when_the_chart_has_changed(module: Path) -> None:
    reader, values = ChartReader(), JsonObject({"global": {}, "demo": {}})
    assert reader.without_disallowed(module, "one", values) == values
    write(module / "values.schema.json", '{"additionalProperties": false}')
    assert reader.without_disallowed(module, "two", values) == {}
    write(module / "values.schema.json", "{")
    assert reader.without_disallowed(module, "three", values) == values


def rename(module: Path) -> None:
    (module / "templates" / "a.yaml").rename(module / "templates" / "b.yaml")


def edit_in_place(module: Path) -> None:
    path = module / "templates" / "a.yaml"
    before = path.stat()
    path.write_text("{{ .Values.demo.b }}\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(edit_in_place, id="same size"),
        pytest.param(rename, id="renamed"),
        pytest.param(lambda module: write(module / "values.yaml", ""), id="added"),
        pytest.param(lambda module: (module / "Chart.yaml").unlink(), id="removed"),
        pytest.param(lambda module: pack(module / "charts" / "s.tgz", s__Chart_dot_yaml="x"), id="subchart"),
    ],
)
def test_digest_sees_each_change(module: Path, change: Callable[[Path], None]) -> None:
    reader = ChartReader()
    before = reader.digest(module)
    assert reader.digest(module) == before == ChartReader().digest(module)
    change(module)
    assert reader.digest(module) != before


def test_digest_follows_links_but_not_in_circles(module: Path) -> None:
    (module / "files").symlink_to(module)
    (module / "nowhere").symlink_to(module / "absent")
    reader = ChartReader()
    before = reader.digest(module)
    write(module / "templates" / "a.yaml", "other")
    assert reader.digest(module) != before


def test_digest_of_an_absent_chart_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModuleError, match="gone"):
        ChartReader().digest(tmp_path / "gone")


def test_nothing_is_remembered_of_a_chart_that_is_gone(tmp_path: Path) -> None:
    reader = ChartReader()

    def use(name: str) -> None:
        directory = tmp_path / name
        write(directory / "templates" / "a.yaml", "a: b\n")
        digest = reader.digest(directory)
        reader.traits(directory, digest, {})
        reader.without_disallowed(directory, digest, {})

    def remembered() -> set[str]:
        gc.collect()
        paths = (item for item in gc.get_objects() if isinstance(item, Path) and item.is_relative_to(tmp_path))
        return {path.relative_to(tmp_path).parts[0] for path in paths if path != tmp_path}

    use("010-one")
    use("010-one-more")
    assert remembered() == {"010-one", "010-one-more"}
    reader.forget(tmp_path / "010-one")
    assert remembered() == {"010-one-more"}


VALUES: JsonObject = {"global": {}, "demo": {}}


def traits_of(module: Path, values: JsonObject | None = None) -> tuple[bool, tuple[str, ...], bool]:
    reader = ChartReader()
    found = reader.traits(module, reader.digest(module), VALUES if values is None else values)
    return found.reads_cluster, found.draws, found.has_hooks


def test_traits_include_subcharts(module: Path) -> None:
    write(module / "charts" / "sub" / "templates" / "s.yaml", "{{ now }}")
    pack(module / "charts" / "packed-1.0.0.tgz", packed__templates__p_dot_yaml="{{ lookup }}")
    pack(module / "charts" / "deep.tgz", deep__charts__in__templates__d_dot_yaml="{{ genCA }}")
    draws = ("charts/deep.tgz/charts/in/templates/d.yaml: genCA", "charts/sub/templates/s.yaml: now")
    assert traits_of(module) == (True, draws, False)


def test_traits_follow_the_chart(module: Path) -> None:
    reader = ChartReader()
    assert not reader.traits(module, reader.digest(module), VALUES).varies
    write(module / "templates" / "a.yaml", "{{ now }}")
    assert reader.traits(module, reader.digest(module), VALUES).varies


def test_traits_look_into_values_given_to_tpl(module: Path) -> None:
    write(module / "templates" / "a.yaml", "{{ tpl .Values.demo.a . }}")
    assert traits_of(module, {"demo": {"a": "{{ .Release.Name }}"}})[1] == ()
    assert traits_of(module, {"demo": {"a": "{{ now }}"}})[1] == ("values: now",)


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(lambda module: write(module / "templates" / "h.yaml", "helm.sh/hook: x"), id="template"),
        pytest.param(lambda module: write(module / "values.yaml", "a: helm.sh/hook"), id="values"),
        pytest.param(
            lambda module: pack(module / "charts" / "s.tgz", s__values_dot_yaml="a: helm.sh/hook"),
            id="subchart's values",
        ),
    ],
)
def test_finds_hooks(module: Path, where: Callable[[Path], None]) -> None:
    assert not traits_of(module)[2]
    where(module)
    assert traits_of(module)[2]


def test_finds_hooks_in_values(module: Path) -> None:
    assert traits_of(module, {"demo": {"annotations": {"helm.sh/hook": "pre-install"}}})[2]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param({"demo"}, True, id="a word"),
        pytest.param({"other", "a"}, True, id="one of two"),
        pytest.param({"dem"}, False, id="a part of a word"),
        pytest.param({"d.mo"}, False, id="not a pattern"),
        pytest.param(set(), False, id="none"),
    ],
)
def test_mentions(module: Path, words: set[str], *, found: bool) -> None:
    assert ChartReader().mentions(module, words) is found


def test_a_broken_archive_is_an_error_that_names_it(module: Path) -> None:
    write(module / "charts" / "bad.tgz", "not an archive")
    with pytest.raises(ModuleError, match=r"bad\.tgz"):
        traits_of(module)


def test_a_chart_is_taken_as_it_is(module: Path, tmp_path: Path) -> None:
    assert prepare_chart(module, "demo", tmp_path) == module


def test_templates_alone_get_a_chart(module: Path, tmp_path: Path) -> None:
    (module / "Chart.yaml").unlink()
    for name in ("crds", "docs", "hooks", "images", "lib", "files"):
        write(module / name / "x.txt", name)
    write(module / "values.yaml", "demo: {}\n")
    chart = prepare_chart(module, "demo", tmp_path)
    assert sorted(path.name for path in chart.iterdir()) == ["Chart.yaml", "files", "templates", "values.yaml"]
    assert "name: demo" in (chart / "Chart.yaml").read_text()
    assert "0.2.0" in (chart / "Chart.yaml").read_text()
    assert (chart / "templates" / "a.yaml").read_text() == "{{ .Values.demo.a }}\n"


def test_crds_of_a_chart_and_its_subcharts(module: Path) -> None:
    write(module / "crds" / "a.yaml", CRD % "a1" + "---\n" + CRD % "a2")
    write(module / "crds" / "deep" / "b.yml", CRD % "b")
    write(module / "crds" / "doc-a.yaml", "not: a crd")
    write(module / "crds" / "_a.yaml", "not: a crd")
    write(module / "crds" / "README.md", "text")
    write(module / "charts" / "sub" / "crds" / "s.yaml", CRD % "s")
    pack(module / "charts" / "p.tgz", p__crds__p_dot_yaml=CRD % "p", p__templates__t_dot_yaml="{{ a }}")
    found = [
        (where, document["metadata"]["name"])  # type: ignore[index,call-overload]  # made above
        for where, document in crd_documents(module, ("doc-", "_"))
    ]
    assert found == [
        ("010-demo/charts/p.tgz/crds/p.yaml", "p"),
        ("010-demo/charts/sub/crds/s.yaml", "s"),
        ("010-demo/crds/a.yaml", "a1"),
        ("010-demo/crds/a.yaml", "a2"),
        ("010-demo/crds/deep/b.yml", "b"),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [pytest.param("a: [\n", YamlError, id="not YAML"), pytest.param("- a\n", ModuleError, id="a list")],
)
def test_a_broken_crd_is_an_error_that_names_it(module: Path, text: str, error: type[Exception]) -> None:
    write(module / "crds" / "bad.yaml", text)
    with pytest.raises(error, match=r"crds/bad\.yaml"):
        list(crd_documents(module, ()))
