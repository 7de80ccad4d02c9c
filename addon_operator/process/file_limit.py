"""How many file descriptors this process and its children may have open (RLIMIT_NOFILE).

The soft limit that a container runtime sets, often 1024, is for programs that use select(2). The operator does not, and
raises its soft limit to the hard one. Its children get the original soft limit: some programs close or examine each
descriptor up to it.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# Of the descriptors for one server. There are four servers, so half of the descriptors stay for watches and children.
_SHARE: Final = 8
_LEAST: Final = 4

_original: tuple[int, int] | None = None


def raise_soft_limit() -> int:
    """Raises the soft limit of this process to the hard one; returns the limit in force.

    Called once by the app, before it opens anything.
    """
    global _original  # noqa: PLW0603 -- mirrors a limit that the kernel has once for each process
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The kernel may refuse a hard limit above its own maximum (fs.nr_open); the soft limit then stays.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        _original = limits
    return current()


def restore_for_child(pid: int) -> None:
    """Sets the original soft limit for a child that was just started; does nothing if the limit was not raised.

    From outside, since code between fork and exec would rule out vfork. A child that reads its limit within
    its first microseconds can still see the raised one, which does no harm.
    """
    if _original is not None:
        # It has ended already, or runs as another user.
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _original)


def current() -> int:
    """Returns the soft limit in force."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 2**30


def connections_for(wanted: int, limit: int) -> int:
    """Returns how many connections one server may have when so many are wanted and `limit` descriptors may be open."""
    return max(_LEAST, min(wanted, limit // _SHARE))
