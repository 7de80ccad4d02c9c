"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long an example takes says nothing on a machine that others use, too.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# A shell without job control starts background jobs with SIGINT ignored, and children inherit that; tests that press
# Ctrl-C need it as a terminal would have it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
