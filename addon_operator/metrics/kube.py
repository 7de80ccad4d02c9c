"""Requests to the API server, watches and the Lease. Source: contract.md 2.15."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from addon_operator.metrics.registry import FINE_BUCKETS, MetricsRegistry

_CLIENT_BUCKETS: Final = (*FINE_BUCKETS, 20.0, 50.0)


class KubeMetrics:
    """Series of the Kubernetes client."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._results = registry.counter(
            "kubernetes_client_request_result_total", "Answers of the API server.", "code method host"
        )
        self._latency = registry.histogram(
            "kubernetes_client_request_latency_seconds", "Latency of API requests.", "verb url", _CLIENT_BUCKETS
        )
        self._limiter = registry.histogram(
            "kubernetes_client_rate_limiter_latency_seconds",
            "Time API requests waited for the rate limit.",
            "verb url",
            _CLIENT_BUCKETS,
        )
        self._watch_errors = registry.counter(
            "kubernetes_client_watch_errors_total", "Watches that were interrupted.", "error_type"
        )

    def request(self, *, verb: str, url: str, host: str, code: str, latency_s: float, limiter_wait_s: float) -> None:
        """Counts one request to the API server.

        Args:
            verb: the HTTP method.
            url: the path without names of objects and namespaces, or there would be a series for each object.
            host: of the API server.
            code: the HTTP status, or `<error>` without an answer.
            latency_s: from sending to the whole answer.
            limiter_wait_s: how long the rate limit held it back before.
        """
        self._results.add(1, code, verb, host)
        self._latency.observe(latency_s, verb, url)
        self._limiter.observe(limiter_wait_s, verb, url)

    def watch_failed(self, error_type: str) -> None:
        """Counts one interruption of a watch, such as `410 Expired` or `Timeout`."""
        self._watch_errors.add(1, error_type)

    def read_unreachable(self, away_s: Callable[[], float]) -> None:
        """Declares for how many seconds the API server has not answered; 0 while it does. Called once."""
        text = "For how long the API server has not answered; 0 while it does."
        self._registry.live_value("kubernetes_api_unreachable_seconds", text, away_s)

    def read_lease(self, name: str, held: Callable[[], bool]) -> None:
        """Declares whether this process holds the Lease of this name. Called once."""
        text = "Whether this operator holds the Lease of its namespace."
        self._registry.live({"leader_election_master_status": text}, "name", lambda: (((name,), (held(),)),))
