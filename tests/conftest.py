"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell without job control starts background jobs with SIGINT ignored, and children inherit that; tests that press
# Ctrl-C need it as a terminal would have it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
