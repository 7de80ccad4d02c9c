"""How large releases are when they are stored, and what the messages name."""

from __future__ import annotations

import base64
import gzip
import random

import pytest

from addon_operator.helm import manifest, release_size

NOISE = base64.b64encode(random.Random(1).randbytes(20_000))


def config_map(name: str, text: str) -> str:
    return f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: {text}}}\n"


PARTS = manifest.documents("".join(config_map(f"c{number}", "x" * number) for number in range(8)))


@pytest.mark.parametrize("parts", [[], [b"a" * 1000], [NOISE], [NOISE, b"b", NOISE]])
def test_the_size_is_that_of_base64_of_gzip(parts: list[bytes]) -> None:
    stored = base64.b64encode(gzip.compress(b"".join(parts)))
    assert abs(release_size.stored_size(parts) - len(stored)) <= 4


@pytest.mark.parametrize(("size", "warns"), [(0, False), (900_000, False), (900_001, True)])
def test_the_warning_names_the_largest_objects(size: int, warns: bool) -> None:
    reason = release_size.warning(size, PARTS)
    assert bool(reason) is warns
    if warns:
        assert reason.startswith(f"{size} of 1048576 bytes; largest objects: ConfigMap/c7 (")
        assert reason.count("ConfigMap/") == 5


def test_the_excess_is_explained_by_manifest_and_files() -> None:
    text = release_size.explain_excess(PARTS, [base64.b64encode(b"x" * 300)])
    assert text.startswith("the release is too large to be stored: about ")
    assert "chart files 300 bytes; largest objects: ConfigMap/c7" in text
    assert "largest objects: none" in release_size.explain_excess([], [])
