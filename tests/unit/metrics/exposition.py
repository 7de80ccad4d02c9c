"""Reads Prometheus text back with the parser of prometheus_client."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, float]


def samples(text: bytes) -> Samples:
    # The parser appends _total to every counter, Prometheus itself does not: hide the type from it.
    untyped = text.decode().replace(" counter\n", " untyped\n")
    return {
        _line(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(untyped)
        for sample in family.samples
    }


def _line(name: str, labels: Mapping[str, str]) -> str:
    pairs = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}"


def types(text: bytes) -> dict[str, str]:
    lines = (line.split() for line in text.decode().splitlines() if line.startswith("# TYPE"))
    return {words[2]: words[3] for words in lines}
