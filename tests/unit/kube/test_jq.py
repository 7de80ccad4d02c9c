from __future__ import annotations

import pytest

from addon_operator.kube.jq import compiled


@pytest.mark.parametrize(
    ("program", "outputs"),
    [
        pytest.param(".big", [b"1732200000123456789"], id="integer beyond 2^53"),
        pytest.param(".n[]", [b"1.0", b"-0.25", b"1E+3"], id="numbers as they are written"),
        pytest.param("{big}", [b'{"big":1732200000123456789}'], id="in a map"),
        pytest.param(".big + 1 | . > 1e18", [b"true"], id="arithmetic"),
        pytest.param("nan", [b"null"], id="no number"),
        pytest.param("empty", [], id="no output"),
        pytest.param(".n[0], .t", [b"1.0", b'"x"'], id="several outputs"),
        pytest.param(".t | ., .", [b'"x"', b'"x"'], id="a pipe"),
        pytest.param("def tojson: 1; .t", [b'"x"'], id="names of its own"),
        pytest.param(". as {$t} | $t", [b'"x"'], id="a variable"),
        pytest.param("label $out | .t, break $out", [b'"x"'], id="a label"),
        pytest.param(".t # the text", [b'"x"'], id="a remark at the end"),
        pytest.param(".t # the text \\", [b'"x"'], id="a remark that goes on in the next line"),
        pytest.param('"<skipped: too deep>"', [b'"<skipped: too deep>"'], id="what jq writes when it gives up"),
    ],
)
def test_outputs_are_json_texts(program: str, outputs: list[bytes]) -> None:
    document = b'{"big":1732200000123456789,"n":[1.0,-0.25,1E3],"t":"x"}'
    assert compiled(program).run(document) == tuple(outputs)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        pytest.param(".a |", r"unexpected end of file at <top-level>, line 1, column 4", id="unfinished"),
        pytest.param(". as $x", r"expecting '\|' at <top-level>, line 1", id="waits for a pipe"),
        pytest.param(".a) | (.b", r"line 1, column 3", id="brackets that do not match"),
        pytest.param("# nothing", r"program not given", id="nothing"),
        pytest.param('module {"a": 1}; .', r"not possible here", id="a module"),
    ],
)
def test_what_does_not_compile(program: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        compiled(program)


def test_a_program_is_compiled_once() -> None:
    assert compiled(".x.y") is compiled(".x.y")


def test_a_result_that_jq_cannot_write_down_is_an_error() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        compiled("reduce range(20000) as $i (1; [.])").run(b"{}")
