"""Whether the process of a holder has ended, with real processes."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator

from addon_operator.kube.holder import Holder, Identity

_HOLDS = """
import signal
from addon_operator.kube.holder import Holder
holder = Holder("other-0")
print(holder.identity, flush=True)
signal.pause()
"""


@contextlib.contextmanager
def another() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that is a holder, and what it writes into a Lease."""
    with subprocess.Popen([sys.executable, "-c", _HOLDS], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            yield other, other.stdout.readline().strip()
        finally:
            other.kill()


def test_a_holder_that_was_killed_is_known_to_be_dead_and_a_live_one_is_not() -> None:
    with contextlib.closing(Holder()) as me, another() as (other, identity):
        parsed = Identity.parse(identity)
        assert parsed is not None
        assert (parsed.name, parsed.pid, str(parsed)) == ("other-0", other.pid, identity)
        assert not me.knows_dead(identity)
        other.kill()
        other.wait()
        assert me.knows_dead(identity)


def test_another_process_with_the_same_id_is_not_the_holder() -> None:
    with contextlib.closing(Holder()) as me, another() as (_, identity):
        parsed = Identity.parse(identity)
        assert parsed is not None
        assert me.knows_dead(str(dataclasses.replace(parsed, run="former")))
        assert not me.knows_dead(identity)


def test_two_operators_on_one_host_are_told_apart() -> None:
    with contextlib.closing(Holder("pod")) as one, contextlib.closing(Holder("pod")) as two:
        assert one.identity != two.identity
        assert not one.knows_dead(str(two.identity))
        assert not two.knows_dead(str(one.identity))


def test_of_holders_elsewhere_nothing_is_known() -> None:
    with contextlib.closing(Holder()) as me:
        for text in (str(Identity("other", 1, "0123456789ab", "cd")), str(Identity("other", 1, "", "cd")), "x", ""):
            assert not me.knows_dead(text)
