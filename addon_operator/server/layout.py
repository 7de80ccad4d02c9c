"""How text for people is laid out: tables, cells, durations, YAML with comments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import yaml

from addon_operator.documents import jsondoc, yamldoc
from addon_operator.documents.jsondoc import JsonObject

_CELL_WIDTH = 100
_YAML_LINE_END = re.compile("(\r\n|[\r\n\x85\u2028\u2029])")
_CONTROL_CODES = (*range(9), *range(11, 32), *range(127, 160))


def commented_yaml(document: JsonObject, origins: Mapping[str, str]) -> str:
    """Writes YAML whose leaves carry their origin as a comment; it still parses to the same document.

    Args:
        document: what to write.
        origins: JSON pointer into it -> text; pointers that it does not have are left out.
    """
    text = yamldoc.dump(document)
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    assert root is not None, "an object is never written as nothing"
    pieces = _YAML_LINE_END.split(text)  # line, its end, line, its end, ...
    for pointer, line in _comment_lines(root, "", 0):
        if pointer in origins:
            pieces[2 * line] += f"  # {printable(one_line(origins[pointer]))}"
    return "".join(pieces)


def _comment_lines(node: yaml.Node, pointer: str, title_line: int | None) -> Iterator[tuple[str, int]]:
    yield pointer, _comment_line(node, title_line)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _comment_lines(value, f"{pointer}/{jsondoc.escape(key.value)}", _comment_line(key, None))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _comment_lines(item, f"{pointer}/{index}", None)


def _comment_line(node: yaml.Node, title_line: int | None) -> int:
    """Returns which line (from 0) can take a comment on a value: inside a scalar it would be text.

    Args:
        node: the value.
        title_line: line of its key; None for a list item, whose first entry begins on the line of the dash.
    """
    if isinstance(node, yaml.ScalarNode):
        return int(node.start_mark.line if node.style in {"|", ">"} else node.end_mark.line)
    if not node.value:
        return int(node.end_mark.line)
    if title_line is not None:
        return title_line
    if isinstance(node, yaml.MappingNode):
        key, value = node.value[0]
        return _comment_line(value, _comment_line(key, None))
    return _comment_line(node.value[0], None)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligns columns with two spaces between them; empty cells show as `-` except in columns without a title."""
    cells = [header, *([cell or ("-" if header[at] else "") for at, cell in enumerate(row)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in cells)


def duration_text(seconds: float) -> str:
    """Writes seconds as people read them: `0.12s`, `4m05s`, `2h00m`."""
    if seconds < 59.995:
        return f"{seconds:.2f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def printable(text: str) -> str:
    """Replaces control characters other than tab and line end.

    Output of hooks ends up in task texts and errors; it must not steer the terminal that shows them.
    """
    return text.translate(dict.fromkeys(_CONTROL_CODES, "\ufffd"))


def one_line(text: str) -> str:
    """Makes one line of several, single spaces between words."""
    return " ".join(text.split())


def cell(text: str) -> str:
    """Makes a text fit into a table: one line, cut with `...` at 100 characters."""
    line = one_line(text)
    return line if len(line) <= _CELL_WIDTH else line[: _CELL_WIDTH - 3] + "..."


def indented(text: str, width: int) -> str:
    """Indents all lines but the first."""
    return text.replace("\n", "\n" + " " * width)


def shifted(text: str) -> str:
    """Indents all lines by two and ends the last one."""
    return "".join(f"  {line}\n" for line in text.splitlines())
