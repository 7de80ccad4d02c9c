"""What charts depend on."""

from __future__ import annotations

import pytest

from addon_operator.documents.jsondoc import JsonValue
from addon_operator.helm.traits import ChartTraits, api_answer, changed_words, scan_chart


def scan(**templates: str) -> ChartTraits:
    return scan_chart((f"templates/{name.replace('__', '.')}", text) for name, text in templates.items())


@pytest.mark.parametrize(
    ("text", "draws"),
    [
        pytest.param("{{ .Values.a }}", (), id="plain"),
        pytest.param("{{ randAlphaNum 5 | b64enc }}", ("randAlphaNum",), id="random"),
        pytest.param('{{- $ca := genCA "ca" 365 -}}', ("genCA",), id="certificate"),
        pytest.param('{{ now | date "2006" }}', ("now",), id="now"),
        pytest.param('{{ printf "%s" (uuidv4) }}', ("uuidv4",), id="nested"),
        pytest.param("{{ .Values.now }} {{ $now }} {{ .now }}", (), id="fields and variables"),
        pytest.param('{{ "now" }} {{ `genCA` }}', (), id="texts"),
        pytest.param("{{/* now {{ genCA */}} now", (), id="comment"),
        pytest.param('{{ "}}" }}{{ now }}', ("now",), id="braces in a text"),
        pytest.param("{{ htpasswd .Values.user .Values.password }}", ("htpasswd",), id="password"),
        pytest.param("now genCA lookup", (), id="outside of actions"),
        pytest.param("{{\n  now\n}}", ("now",), id="several lines"),
    ],
)
def test_finds_what_draws(text: str, draws: tuple[str, ...]) -> None:
    found = scan(a__yaml=text)
    assert found.draws == tuple(f"templates/a.yaml: {name}" for name in draws)
    assert found.varies is bool(draws)


def test_finds_lookup() -> None:
    found = scan(a__yaml='{{ (lookup "v1" "Secret" "ns" "x").data }}')
    assert (found.reads_cluster, found.varies, found.needs_cluster) == (True, True, True)


HELPERS = """
{{- define "lib.name" -}}{{ .Release.Name }}{{- end -}}
{{- define "lib.password" -}}{{ if .Values.x }}{{ randAlphaNum 9 }}{{ else }}a{{ end }}{{- end -}}
{{- define "lib.both" -}}{{ include "lib.password" . }}{{- end -}}
"""


@pytest.mark.parametrize(
    ("text", "draws"),
    [
        pytest.param('{{ include "lib.name" . }}', False, id="another helper"),
        pytest.param('{{ include "lib.password" . }}', True, id="the helper"),
        pytest.param('{{ template "lib.both" . }}', True, id="through a second one"),
        pytest.param("{{ include (printf `lib.%s` .Values.a) . }}", True, id="a name that is not known"),
        pytest.param('{{ include "lib.name" . | quote }}{{ include $x . }}', True, id="one known, one not"),
        pytest.param("{{ .Values.a }}", False, id="none"),
    ],
)
def test_only_helpers_that_are_reached_count(text: str, *, draws: bool) -> None:
    assert scan(_helpers__tpl=HELPERS, a__yaml=text).draws == (
        ("templates/_helpers.tpl: randAlphaNum",) if draws else ()
    )


def test_notes_do_not_count() -> None:
    assert not scan(NOTES__txt="{{ now }}").varies


def test_a_block_counts_where_it_stands() -> None:
    assert scan(a__yaml='{{ block "x" . }}{{ now }}{{ end }}{{ .Values.b }}').draws == ("templates/a.yaml: now",)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        pytest.param('{{ if .Capabilities.APIVersions.Has "a/v1" }}{{ end }}', ("a/v1",), id="literal"),
        pytest.param(
            '{{ $.Capabilities.APIVersions.Has "b" }}{{ .Capabilities.APIVersions.Has `a` }}', ("a", "b"), id="two"
        ),
        pytest.param("{{ .Capabilities.APIVersions.Has .Values.api }}", None, id="from a value"),
        pytest.param("{{ range .Capabilities.APIVersions }}{{ end }}", None, id="the whole list"),
        pytest.param("{{ .Capabilities.KubeVersion }}", (), id="version only"),
        pytest.param('{{ "APIVersions" }}', (), id="a text"),
    ],
)
def test_finds_questions_about_apis(text: str, asked: tuple[str, ...] | None) -> None:
    found = scan(a__yaml=text)
    assert found.asked_apis == asked
    assert found.needs_cluster is (asked != ())
    assert not found.varies


def test_templates_in_values_count_only_with_tpl() -> None:
    values = [("values", "a: '{{ now }}'")]
    assert not scan_chart([("templates/a.yaml", "{{ .Values.a }}")], values).varies
    with_tpl = scan_chart([("templates/a.yaml", "{{ tpl .Values.a . }}")], values)
    assert (with_tpl.draws, with_tpl.expands) == (("values: now",), True)


def test_values_may_reach_helpers() -> None:
    values = [("values", "{{ include `lib.password` . }}")]
    assert scan_chart([("templates/_h.tpl", HELPERS), ("templates/a.yaml", "{{ tpl .Values.a . }}")], values).varies


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param((), "", id="nothing"),
        pytest.param(("a/v1", "b/v1"), "a/v1=True,b/v1=False", id="literals"),
        pytest.param(None, "digest", id="the list"),
    ],
)
def test_answers_what_is_asked(asked: tuple[str, ...] | None, answer: str) -> None:
    assert api_answer(ChartTraits(asked_apis=asked), ["a/v1", "c/v1"], "digest") == answer


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param({"global": {"a": 1}}, {"global": {"a": 1}}, set(), id="equal"),
        pytest.param({"global": {"a": 1}}, {"global": {"a": 2}}, {"a"}, id="changed"),
        pytest.param({"global": {}}, {"global": {"a": {"b": 1}}}, {"a"}, id="added"),
        pytest.param({"global": {"a": {"b": 1, "c": 2}}}, {"global": {"a": {"c": 2}}}, {"a", "b"}, id="removed below"),
        pytest.param({"m": {"l": [1]}}, {"m": {"l": [2]}}, {"l"}, id="list"),
    ],
)
def test_names_what_has_changed(before: JsonValue, after: JsonValue, words: set[str]) -> None:
    assert changed_words(before, after) == words
