from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addon_operator.retry import Backoff, RetryPolicy, TokenBucket

POLICY = RetryPolicy(1.0, 8.0)


@pytest.mark.parametrize(("failures", "delay_s"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (10_000, 8)])
def test_delays_double_up_to_the_longest(failures: int, delay_s: float) -> None:
    assert POLICY.delay_s(failures) == delay_s


@pytest.mark.parametrize(
    ("backoff", "warnings"),
    [
        pytest.param(Backoff(POLICY), [3], id="the third"),
        pytest.param(Backoff(POLICY, warns_at=1), [1], id="the first"),
        pytest.param(Backoff(POLICY, warns_at=1, warns_again_every=4), [1, 4, 8, 12], id="and again"),
        pytest.param(
            Backoff(POLICY, warns_at=2, warns_again_every=1), list(range(2, 13)), id="each from the second on"
        ),
    ],
)
def test_which_failures_of_a_series_are_worth_a_warning(backoff: Backoff, warnings: list[int]) -> None:
    for _ in range(2):
        warned = []
        for number in range(1, 13):
            assert backoff.failed() == backoff.delay_s == POLICY.delay_s(number)
            if backoff.take_warning():
                warned.append(backoff.failures)
            assert backoff.warned == (number >= warnings[0])
        assert warned == warnings
        backoff.succeeded()
        assert (backoff.failures, backoff.delay_s, backoff.warned) == (0, 0, False)


def test_a_warning_that_was_not_taken_is_due_with_the_next_failure() -> None:
    backoff = Backoff(POLICY)
    for _ in range(5):
        backoff.failed()
    assert backoff.take_warning()
    backoff.failed()
    assert not backoff.take_warning()


def test_a_restart_begins_the_delays_anew_and_warns_no_second_time() -> None:
    backoff = Backoff(POLICY)
    delays = [backoff.failed() for _ in range(3)]
    assert backoff.take_warning()
    backoff.restart()
    assert [backoff.failed() for _ in range(3)] == delays
    assert backoff.warned
    assert not backoff.take_warning()


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
