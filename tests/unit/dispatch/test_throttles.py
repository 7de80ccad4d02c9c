"""How often hooks may run, and which buckets are kept."""

from __future__ import annotations

import pytest

from addon_operator.dispatch.throttles import Throttles
from addon_operator.hooks.call import HookId
from addon_operator.hooks.config.model import Throttle

HOOK, OTHER, THIRD = HookId("m", "hooks/x.sh"), HookId("m", "hooks/y.sh"), HookId(None, "hooks/x.sh")
TWICE = Throttle(10, 2)


@pytest.mark.parametrize(
    ("throttle", "at", "expected"),
    [
        pytest.param(None, [0, 0, 0, 0], [0, 0, 0, 0], id="no limit"),
        pytest.param(TWICE, [0, 0, 0, 4, 10, 10], [0, 0, 10, 6, 0, 10], id="burst, then one in each interval"),
        pytest.param(TWICE, [0, 100, 100, 100], [0, 0, 0, 10], id="no more than the burst is saved up"),
    ],
)
def test_waiting(throttle: Throttle | None, at: list[float], expected: list[float]) -> None:
    throttles = Throttles(lambda _: True)
    assert [throttles.wait_s(HOOK, throttle, now) for now in at] == pytest.approx(expected)


def test_hooks_do_not_share_a_bucket_and_a_changed_limit_begins_with_a_full_one() -> None:
    throttles = Throttles(lambda _: True)
    once = Throttle(10, 1)
    assert [throttles.wait_s(hook, once, 0) for hook in (HOOK, OTHER, THIRD)] == [0, 0, 0]
    assert throttles.wait_s(HOOK, once, 1) == 9
    assert throttles.wait_s(HOOK, TWICE, 1) == 0


def test_buckets_of_hooks_that_are_gone_are_dropped() -> None:
    existing = {HOOK}
    throttles = Throttles(existing.__contains__)
    for number in range(100):
        hook = HookId(f"module-{number}", "hooks/x.sh")
        existing.add(hook)
        throttles.wait_s(hook, TWICE, 0)
        existing.remove(hook)
    assert len(throttles) == 1


def test_the_bucket_of_a_hook_that_exists_is_kept_when_others_go() -> None:
    existing = {HOOK, OTHER}
    throttles = Throttles(existing.__contains__)
    for hook in (HOOK, OTHER):
        assert throttles.wait_s(hook, Throttle(10, 1), 0) == 0
    existing.remove(OTHER)
    assert throttles.wait_s(THIRD, Throttle(10, 1), 0) == 0
    assert len(throttles) == 2
    assert throttles.wait_s(HOOK, Throttle(10, 1), 0) == 10


def test_a_hook_without_a_limit_keeps_no_bucket() -> None:
    throttles = Throttles(lambda _: True)
    throttles.wait_s(HOOK, TWICE, 0)
    throttles.wait_s(HOOK, None, 0)
    assert len(throttles) == 0
