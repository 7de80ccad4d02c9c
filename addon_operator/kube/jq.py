"""jq programs that hooks give: compiled once, run on JSON texts, answering with JSON texts.

Pure; `filters` runs them where they can do no harm. Texts on both sides, because numbers then stay as they are
written: as Python's objects, integers beyond 2^53 would be rounded. Those who call say what the outputs mean.
Source: contract.md 2.2, 2.6.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol, TypeAlias

from addon_operator.documents import jsondoc

# jq writes this, which is not JSON, in the place of what is nested deeper than 10,000 levels.
_CUT = b"<skipped: too deep>"


Run: TypeAlias = Callable[[str, bytes], tuple[bytes, ...]]
"""Runs a program, given as text, on one JSON document, as `Program.run` does; may raise `Stopped`."""


class Stopped(ValueError):
    """A program was stopped, or is not run any more; the message says why, and quotes nothing."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A compiled program.

    Attributes:
        source: its text.
    """

    source: str
    _compiled: _Compiled

    def run(self, document: bytes) -> tuple[bytes, ...]:
        """Returns all outputs for one JSON document, as compact JSON.

        Raises:
            ValueError: the program failed on this document; the message may quote it.
        """
        outputs = tuple(text.encode() for text in self._compiled.input_text(document.decode()).all())
        for output in outputs:
            if _CUT in output:
                _check_whole(output)
        return outputs


@functools.lru_cache(maxsize=512)
def compiled(source: str) -> Program:
    """Compiles a program, once as long as it is in use.

    Raises:
        ValueError: it does not compile; the message quotes it.
    """
    import jq  # noqa: PLC0415 -- only programs pay for it

    # Alone first: what is unfinished may become whole by what follows, and messages name places in what was given.
    jq.compile(source)
    try:
        # Two line ends, since a backslash at the end of a remark takes the first one into it.
        return Program(source, jq.compile(f"(\n{source}\n\n) | tojson"))
    except ValueError:
        raise ValueError("jq: error: import, include and module are not possible here") from None


def run(source: str, document: bytes) -> tuple[bytes, ...]:
    """Runs a program that can be trusted to end, in this process.

    Raises:
        ValueError: as `compiled` and `Program.run`.
    """
    return compiled(source).run(document)


class _Compiled(Protocol):
    def input_text(self, text: str, /) -> _Outputs: ...


class _Outputs(Protocol):
    def all(self) -> list[str]: ...


def _check_whole(output: bytes) -> None:
    try:
        jsondoc.loads(output)
    except ValueError:
        raise ValueError("the result is nested too deeply") from None
