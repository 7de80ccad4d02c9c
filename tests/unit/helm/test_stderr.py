"""What helm complains about; the messages are those of helm 3.21."""

from __future__ import annotations

import pytest

from addon_operator.helm.stderr import explain, is_too_large

SECRET = "hunter2"
SCHEMA = "Error: values don't meet the specifications of the schema(s) in the following chart(s):\ndemo:\n"
CALL = 'Error: template: demo/templates/x.yaml:1:3: executing "demo/templates/x.yaml" at <{}>: error calling {}: {}'


@pytest.mark.parametrize(
    ("stderr", "text"),
    [
        pytest.param("Error: UPGRADE FAILED: no matches for kind X", "no matches for kind X", id="upgrade"),
        pytest.param("Error: INSTALLATION FAILED: timed out\nmore", "timed out\nmore", id="install, several lines"),
        pytest.param(
            "WARNING: readable\nwalk.go:75: found symbolic link\nError: timed out", "timed out", id="warnings"
        ),
        pytest.param("I1121 09:00:58.9 1 x.go:1] hi\nunexpected EOF", "unexpected EOF", id="no Error"),
        pytest.param("", "no error message", id="nothing"),
        pytest.param(
            "Error: execution error at (demo/templates/x.yaml:1:3): sec.token is needed",
            "execution error at (demo/templates/x.yaml:1:3): sec.token is needed",
            id="the chart's own words",
        ),
        pytest.param(
            "Error: YAML parse error on demo/templates/x.yaml: error converting YAML to JSON: yaml: line 5: "
            "could not find expected ':'",
            "YAML parse error on demo/templates/x.yaml: error converting YAML to JSON: yaml: line 5: "
            "could not find expected ':'",
            id="YAML, nothing quoted",
        ),
        pytest.param(
            'Error: template: a/templates/x.yaml:1:3: executing "a/templates/x.yaml" at <include "a.y" .>: error '
            'calling include: template: a/templates/_h.tpl:2:4: executing "a.y" at <.Values.a.b>: nil pointer '
            "evaluating interface {}.b",
            'template: a/templates/x.yaml:1:3: executing "a/templates/x.yaml" at <include "a.y" .>: error calling '
            'include: template: a/templates/_h.tpl:2:4: executing "a.y" at <.Values.a.b>: nil pointer evaluating '
            "interface {}.b",
            id="a helper that fails",
        ),
    ],
)
def test_explains(stderr: str, text: str) -> None:
    assert explain(stderr) == text


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("'hunter2' does not match pattern '^[0-9]+$'", "does not match pattern '^[0-9]+$'"),
        (r"'it\'s hunter2\nand' does not match pattern '^x\'y$'", r"does not match pattern '^x\'y$'"),
        ("'hunter2' is not valid email: missing @ in hunter2", "is not valid email"),
        ("maximum: got 4,711, want 5", "maximum: want 5"),
        ("minLength: got 7, want 20", "minLength: want 20"),
        ("got string, want null or integer", "got string, want null or integer"),
        ("value must be one of 'aa', 'bb'", "value must be one of 'aa', 'bb'"),
        ("missing properties 'user', 'other'", "missing properties 'user', 'other'"),
        ("additional properties 'x' not allowed", "additional properties 'x' not allowed"),
        ("'allOf' failed", "'allOf' failed"),
        ("'oneOf' failed, subschemas 0, 1 matched", "'oneOf' failed, subschemas 0, 1 matched"),
    ],
)
@pytest.mark.parametrize("indent", ["", "  "])
def test_a_broken_schema_is_told_by_path_and_rule(rule: str, told: str, indent: str) -> None:
    path = r"- at '/sec/it\'s'"
    expected = SCHEMA.removeprefix("Error: ") + f"{indent}{path}: {told}\n- at '': missing property 'z'"
    assert explain(f"{SCHEMA}{indent}{path}: {rule}\n- at '': missing property 'z'\n") == expected


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        pytest.param(
            'Error: Secret "x" is invalid: data[a]: Invalid value: "hunter2: \\"y\\"": must be short',
            'Secret "x" is invalid: data[a]: Invalid value: must be short',
            id="the API server, a text",
        ),
        pytest.param(
            "Error: spec.pin: Invalid value: 4711hunter2: must be positive",
            "spec.pin: Invalid value: must be positive",
            id="the API server, a number",
        ),
        pytest.param(
            'Error: [spec.a: Unsupported value: "hunter2": supported values: "A", "B", spec.b: Required value]',
            '[spec.a: Unsupported value: supported values: "A", "B", spec.b: Required value]',
            id="the API server, several",
        ),
        pytest.param(
            'Error: spec.selector: Invalid value: {"matchLabels":{"a":"b"},"x":"hunter2: }"}: field is immutable',
            "spec.selector: Invalid value: field is immutable",
            id="the API server, JSON",
        ),
        pytest.param(
            'Error: spec: Invalid value: v1.Spec{A:map[string]string{"a":"hunter2"}, B:[]string(nil)}: is immutable',
            "spec: Invalid value: is immutable",
            id="the API server, a structure",
        ),
        pytest.param(
            "Error: YAML parse error on demo/templates/x.yaml: error converting YAML to JSON: yaml: cannot decode "
            "!!str `hunter2` as a !!int",
            "YAML parse error on demo/templates/x.yaml: error converting YAML to JSON: yaml: cannot decode !!str "
            "... as a !!int",
            id="YAML, a tag",
        ),
        pytest.param(
            'Error: template: a/templates/x.yaml:1:9: executing "a/templates/x.yaml" at <.Values.p>: range can\'t '
            "iterate over hunter2",
            'template: a/templates/x.yaml:1:9: executing "a/templates/x.yaml" at <.Values.p>: range can\'t iterate '
            "over ...",
            id="a range",
        ),
        pytest.param('Error: spec.x: Not found: "hunter2"', "spec.x: Not found", id="the API server, a reference"),
        pytest.param(
            "Error: YAML parse error on x.yaml: yaml: unknown anchor 'hunter2' referenced",
            "YAML parse error on x.yaml: yaml: unknown anchor ... referenced",
            id="YAML, an anchor",
        ),
        pytest.param(
            'Error: yaml: invalid map key: map[interface {}]interface {}{"a":"hunter2"}',
            "yaml: invalid map key: map[interface {}]interface {}...",
            id="YAML, a key",
        ),
        pytest.param(
            CALL.format(
                'mustToDate "2006" .a', "mustToDate", 'parsing time "hunter2": cannot parse "hunter2" as "2006"'
            ),
            CALL.format('mustToDate "2006" .a', "mustToDate", "parsing time ...: cannot parse ... as ...")[7:],
            id="a template function",
        ),
        pytest.param(
            CALL.format(".a", "mustRegexMatch", "error parsing regexp: missing closing ): `(hunter2`"),
            CALL.format(".a", "mustRegexMatch", "error parsing regexp: missing closing ): ...")[7:],
            id="a regular expression",
        ),
        pytest.param(
            CALL.format("tpl .a .", "tpl", 'cannot parse template "{{ hunter2 }}": template: gotpl:1: bad'),
            CALL.format("tpl .a .", "tpl", "cannot parse template ...: template: gotpl:1: bad")[7:],
            id="a template in the values",
        ),
    ],
)
def test_values_are_not_repeated(stderr: str, told: str) -> None:
    assert SECRET in stderr
    assert explain(stderr) == told


def test_what_is_left_of_a_line_that_was_cut_is_not_shown() -> None:
    long = f"{SECRET}' does not match pattern 'a'\n" + "- at '/a': got string, want null\n" * 250
    assert explain(long).splitlines()[:2] == ["...", "- at '/a': got string, want null"]
    assert explain(SECRET * 1200) == "..."
    assert explain(f"{SECRET}\n{'é' * 300}{'a' * 7500}").startswith("...")


@pytest.mark.parametrize(
    ("stderr", "large"),
    [
        ('create: failed to create: Secret "x" is invalid: data: Too long: may not be more than 1048576 bytes', True),
        ("etcdserver: request is too large", True),
        ("Too many requests", False),
    ],
)
def test_recognises_what_is_too_large(stderr: str, *, large: bool) -> None:
    assert is_too_large(stderr) is large
