"""What JSON patches of hooks cost: `patching.resolve` beside the bare library, as ratios of one run.

`python -m benchmarks.patches`. The bare library copies the whole document once, applies the patch in place, and keeps
nothing of what the patch said. Figures of November 2026, with those of the code that the library replaced, are in
docs/decisions/0007-libraries.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import jsonpatch

from addon_operator.documents.jsondoc import JsonObject, JsonValue
from addon_operator.values import patching
from addon_operator.values.patches import Operation

_ROUNDS = 3
_MANY = 100_000


def main() -> None:
    """Prints one line for each case: seconds of ours, seconds of the library, their ratio."""
    print(f"{'case':<58} {'resolve s':>10} {'library s':>10} {'ratio':>7}")
    for name, base, runs in _cases():
        resolve, library = _best(_resolve, base, runs), _best(_library, base, runs)
        print(f"{name:<58} {resolve:>10.3f} {library:>10.3f} {resolve / library:>7.2f}")


def _cases() -> list[tuple[str, JsonValue, list[list[Operation]]]]:
    small, large = _document(servers=4), _document(servers=1_000)
    many = "operations in one patch"
    appended = [_add("/m/list/-", n) for n in range(_MANY)]
    return [
        (f"{_MANY} {many}, new keys of a map", small, [[_add(f"/m/map/k{n}", n) for n in range(_MANY)]]),
        (f"{_MANY} {many}, the same key", small, [[_add("/m/map/k", n) for n in range(_MANY)]]),
        (f"{_MANY} {many}, appended to a list", small, [appended]),
        (f"{_MANY // 2} {many}, appended to a list", small, [appended[: _MANY // 2]]),
        ("1000 patches of 4 operations, document of 30 values", small, [_small(n) for n in range(1_000)]),
        ("100 patches of 4 operations, document of 5000 values", large, [_small(n) for n in range(100)]),
        ("100 patches of 1 operation that sets 5000 values", small, [[_add("/m/servers", large)]] * 100),
    ]


def _document(servers: int) -> JsonObject:
    """Makes a module's values: some scalars, a map, a list, and servers of five values each."""
    table: JsonObject = {
        f"server-{n}": {"host": f"10.0.0.{n}", "port": n, "weight": 0.5, "tls": True, "labels": {"zone": "a"}}
        for n in range(servers)
    }
    return {"m": {"a": 1, "map": {"x": 1, "y": 2}, "list": ["p", "q"], "none": None, "servers": table}}


def _small(number: int) -> list[Operation]:
    return [
        _add("/m/a", number),
        _add("/m/servers/server-1/port", number),
        _add("/m/list/-", number),
        Operation("remove", "/m/map/x"),
    ]


def _add(path: str, value: JsonValue) -> Operation:
    return Operation("add", path, value)


def _resolve(base: JsonValue, runs: Sequence[Sequence[Operation]]) -> None:
    for operations in runs:
        patching.resolve(operations, base, "patch")


def _library(base: JsonValue, runs: Sequence[Sequence[Operation]]) -> None:
    for operations in runs:
        jsonpatch.apply_patch(base, [operation.as_json() for operation in operations])


def _best(
    run: Callable[[JsonValue, Sequence[Sequence[Operation]]], None],
    base: JsonValue,
    runs: Sequence[Sequence[Operation]],
) -> float:
    seconds = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        run(base, runs)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


if __name__ == "__main__":
    main()
