"""Python imports this at the start of the operator that a soak test watches: on SIGUSR2 it counts what is in memory.

Before it counts it collects garbage and gives free memory back, so that counts of like moments can be compared. Other
Python programs that inherit the search path do nothing here.
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path


def _count(_number: int, _frame: object) -> None:
    for _ in range(3):
        gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    objects = gc.get_objects()
    kinds = Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in objects)
    try:
        tasks = Counter(task.get_name() for task in asyncio.all_tasks())
    except RuntimeError:
        tasks = Counter()
    found = {
        "objects": len(objects),
        "kinds": dict(kinds.most_common(150)),
        "tasks": dict(tasks),
        "threads": [thread.name for thread in threading.enumerate()],
    }
    path = Path(os.environ["SOAK_COUNTS"])
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(path)


if sys.orig_argv[-3:-1] == ["-m", "addon_operator"] and "SOAK_COUNTS" in os.environ:
    signal.signal(signal.SIGUSR2, _count)
