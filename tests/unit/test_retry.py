from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.retry import TokenBucket


def test_burst_is_free_and_the_rest_waits_in_order() -> None:
    bucket = TokenBucket(rate=2, burst=3)
    assert [bucket.reserve(10.0) for _ in range(5)] == [0, 0, 0, 0.5, 1.0]


def test_tokens_come_back_with_time_but_not_above_the_burst() -> None:
    bucket = TokenBucket(rate=2, burst=2)
    assert [bucket.reserve(0.0) for _ in range(3)] == [0, 0, 0.5]
    assert [bucket.reserve(100.0) for _ in range(3)] == [0, 0, 0.5]


def test_no_rate_is_no_limit() -> None:
    bucket = TokenBucket(rate=0, burst=1)
    assert {bucket.reserve(0.0) for _ in range(1000)} == {0.0}


@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 20),
    pauses=st.lists(st.floats(0, 5), min_size=1, max_size=50),
)
def test_never_more_than_burst_plus_rate(rate: float, burst: int, pauses: list[float]) -> None:
    bucket, now, sent = TokenBucket(rate, burst), 0.0, []
    for pause in pauses:
        now += pause
        sent.append(now + bucket.reserve(now))
    assert sent == pytest.approx(sorted(sent))
    for first, began in enumerate(sent):
        for last in range(first, len(sent)):
            assert last - first + 1 <= burst + rate * (sent[last] - began) + 1e-6
