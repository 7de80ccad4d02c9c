"""The limit of open files in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import asyncio, json, os, resource
from addon_operator.process import file_limit
from addon_operator.process import child

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 400))
before = asyncio.new_event_loop()
limit = file_limit.raise_soft_limit()
lines = []

async def main():
    # More than the children may have.
    files = [open(os.devnull) for _ in range(250)]
    script = "sleep 0.1; ulimit -Sn; ulimit -Hn"
    on_line = lambda stream, line: lines.append(int(line))
    await child.run(["bash", "-c", script], env=dict(os.environ), timeout_s=60, on_line=on_line)
    for file in files:
        file.close()

before.run_until_complete(main())
print(json.dumps([limit, file_limit.current(), lines]))
"""


def test_the_operator_takes_the_hard_limit_and_children_keep_the_soft_one() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert json.loads(done.stdout) == [400, 400, [200, 400]]
