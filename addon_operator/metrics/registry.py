"""Where the operator's own series are declared and rendered; each is declared beside what records it.

Everything is called from one event loop; nothing locks. Source: contract.md 2.15; 3.9 for the metrics with two names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from addon_operator.metrics.operations import SeriesKind
from addon_operator.metrics.series import Family, LiveSeries, render

FINE_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
RUN_BUCKETS: Final = (*FINE_BUCKETS, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)
"""A hook or a helm may take 20 minutes."""

Rows = Iterable[tuple[Sequence[str], Sequence[float]]]


class MetricsRegistry:
    """All series of the operator itself, and the figures of its process.

    Attributes:
        kinds: name -> kind of everything declared; hooks may not use these names.
    """

    def __init__(self, prefix: str) -> None:
        """Declares the figures of the process.

        Args:
            prefix: in front of each name of the operator's own.
        """
        self._prefix = prefix
        self._collectors = CollectorRegistry()
        self._of_modules: list[Family] = []
        process = ProcessCollector(registry=self._collectors)
        self.kinds: dict[str, SeriesKind] = {
            sample.name: "gauge" for family in process.collect() for sample in family.samples
        }

    def counter(self, names: str, text: str, labels: str = "") -> Family:
        """Declares a counter; see `family`."""
        return self.family(names, "counter", text, labels)

    def gauge(self, names: str, text: str, labels: str = "", *, outlives_module: bool = False) -> Family:
        """Declares a gauge; see `family`. With `outlives_module`, `keep_modules` does not apply."""
        return self.family(names, "gauge", text, labels, outlives_module=outlives_module)

    def histogram(self, names: str, text: str, labels: str = "", buckets: Sequence[float] = RUN_BUCKETS) -> Family:
        """Declares a histogram; see `family`."""
        return self.family(names, "histogram", text, labels, buckets)

    def family(
        self,
        names: str,
        kind: SeriesKind,
        text: str,
        labels: str,
        buckets: Sequence[float] = (),
        *,
        outlives_module: bool = False,
    ) -> Family:
        """Declares a metric with its values.

        Args:
            names: without the prefix; several, separated by spaces, show the same values.
            kind: of the metric.
            text: its help.
            labels: their names, separated by spaces. Where `module` is the first, `keep_modules` applies.
            buckets: upper bounds of a histogram in seconds, rising, without infinity.
            outlives_module: series stay when the directory of their module is gone.
        """
        family = Family([self._prefix + name for name in names.split()], kind, text, labels.split(), buckets)
        self._register(family)
        if labels.startswith("module") and not outlives_module:
            self._of_modules.append(family)
        return family

    def live(self, texts: Mapping[str, str], labels: str, read: Callable[[], Rows], kind: SeriesKind = "gauge") -> None:
        """Declares metrics whose values are read whenever they are rendered.

        Args:
            texts: name without the prefix -> help.
            labels: names of the labels, separated by spaces, the same for all of them.
            read: returns the labels' values with one value for each metric; equal labels are added up.
            kind: the same for all of them; no histogram.
        """
        full_names = {self._prefix + name: text for name, text in texts.items()}
        self._register(LiveSeries(full_names, labels.split(), read, kind))

    def live_value(self, name: str, text: str, read: Callable[[], float], kind: SeriesKind = "gauge") -> None:
        """Declares a metric without labels whose value is read whenever it is rendered."""
        self.live({name: text}, "", lambda: (((), (read(),)),), kind)

    def keep_modules(self, names: Collection[str]) -> None:
        """Drops the series of all modules but these; series of global hooks, with an empty label, are kept."""
        for family in self._of_modules:
            family.keep({*names, ""})

    def render(self) -> bytes:
        """Writes all series as Prometheus text."""
        return render(self._collectors.collect())

    def _register(self, collector: Family | LiveSeries) -> None:
        self._collectors.register(collector)
        self.kinds.update(dict.fromkeys(collector.names, collector.kind))
