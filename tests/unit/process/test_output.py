"""Splitting output into lines, whatever the chunks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.process import output


def _split(chunks: list[bytes]) -> list[str]:
    lines: list[str] = []
    sink = output.Lines("stdout", lambda _stream, line: lines.append(line))
    for chunk in chunks:
        sink.feed(chunk)
    sink.end()
    return lines


@given(st.text(st.sampled_from("aä€\n"), max_size=60), st.lists(st.integers(0, 200), max_size=6))
def test_chunks_do_not_matter(text: str, cuts: list[int]) -> None:
    data = text.encode()
    points = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert (
        _split([data[start:end] for start, end in itertools.pairwise(points)])
        == text.removesuffix("\n").split("\n")[: len(text)]
    )


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"a\nb", ["a", "b"], id="no line end at the end"),
        pytest.param(b"a\r\nb\r\n", ["a", "b"], id="carriage returns"),
        pytest.param(b"\xff\xfe\n", ["\ufffd\ufffd"], id="not text"),
        pytest.param(b"\n\n", ["", ""], id="empty lines"),
    ],
)
def test_lines(data: bytes, lines: list[str]) -> None:
    assert _split([data]) == lines


@pytest.mark.parametrize("chunk", [1000, 10**6], ids=["small chunks", "one chunk"])
def test_a_long_line_is_cut_with_a_note(chunk: int) -> None:
    data = b"x" * 50_000 + b"\nnext\n"
    lines = _split([data[start : start + chunk] for start in range(0, len(data), chunk)])
    assert lines == ["x" * 10_000 + "... (cut after 10000 characters)", "next"]


def test_a_line_of_just_the_allowed_length_is_whole() -> None:
    assert _split([b"x" * 10_000 + b"\n"]) == ["x" * 10_000]


def test_endless_output_is_cut_with_a_note() -> None:
    lines = _split([b"y\n" * 6_000] * 3)
    assert len(lines) == output.MAX_LINES + 1
    assert lines[-1] == "... (8000 more lines, not shown)"
