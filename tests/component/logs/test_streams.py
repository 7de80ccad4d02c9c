"""Processes whose standard output and error nobody reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

PRELUDE = """
import asyncio, json, os, signal, sys
from addon_operator import logs
from addon_operator.logs import streams
from addon_operator.logs.repeats import Repeats
from addon_operator.logs import get_logger

MANY = Repeats(same=10**9, similar=10**9)
streams.unblock(logs.lines_dropped)
logs.configure("json", "info", with_time=False, repeats=MANY)
log = get_logger("test")
notes = os.fdopen(int(sys.argv[1]), "w", buffering=1)
"""

# A megabyte is more than any pipe holds, and ten of them are more than is kept.
FLOOD = """
async def main():
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    for number in range(10_000):
        log.info("flood", number=number, text="x" * 1000)
        print("out", number)
    notes.write("alive\\n")
    await stopped.wait()
    log.info("stopped")
    print("table")
    notes.write(json.dumps(streams.lines_dropped()) + "\\n")

asyncio.run(main())
"""

FATAL = """
for number in range(1000):
    log.info("line", number=number)
raise RuntimeError("the end")
"""


class Unread:
    """A process whose standard streams are pipes that nobody reads unless told."""

    def __init__(self, script: str) -> None:
        self.notes, theirs = os.pipe()
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, str(theirs)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        self.lines = os.fdopen(self.notes)

    def end(self) -> None:
        self.popen.kill()
        self.popen.communicate()
        self.lines.close()


def test_a_pipe_that_nobody_reads_stops_neither_the_loop_nor_sigterm_nor_the_exit() -> None:
    process = Unread(FLOOD)
    try:
        assert process.lines.readline() == "alive\n"
        process.popen.send_signal(signal.SIGTERM)
        assert json.loads(process.lines.readline()) > 1000
        assert process.popen.wait(timeout=60) == 0
    finally:
        process.end()


def test_when_the_pipe_is_read_again_the_log_says_how_many_lines_are_missing() -> None:
    process = Unread(FLOOD)
    try:
        assert process.lines.readline() == "alive\n"
        assert process.popen.stderr is not None
        lines = [json.loads(process.popen.stderr.readline())]
        while lines[-1]["msg"] == "flood":
            lines.append(json.loads(process.popen.stderr.readline()))
        missing = lines.pop()
        assert missing["msg"] == "log lines were dropped: the output was not read in time"
        assert [line["number"] for line in lines] == list(range(len(lines)))
        assert missing["lines"] == 10_000 - len(lines)
        process.popen.send_signal(signal.SIGTERM)
        assert json.loads(process.lines.readline()) >= missing["lines"]
        out, err = process.popen.communicate(timeout=60)
        assert json.loads(err.splitlines()[-1])["msg"] == "stopped"
        assert out.splitlines()[-1] == b"table"
    finally:
        process.end()


def test_the_last_words_of_a_process_that_dies_of_an_error_are_not_lost() -> None:
    process = Unread(FATAL)
    try:
        _, err = process.popen.communicate(timeout=60)
        assert process.popen.returncode == 1
        assert err.count(b'"msg": "line"') == 1000
        assert err.splitlines()[-1] == b"RuntimeError: the end"
    finally:
        process.end()


def test_a_closed_pipe_ends_nothing() -> None:
    process = Unread(FLOOD)
    try:
        assert process.popen.stdout is not None
        assert process.popen.stderr is not None
        process.popen.stdout.close()
        process.popen.stderr.close()
        assert process.lines.readline() == "alive\n"
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(timeout=60) == 0
    finally:
        process.popen.kill()
        process.popen.wait()
        process.lines.close()


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing() -> None:
    script = PRELUDE + "os.set_blocking(2, False)\nfor n in range(2000): log.info('line', n=n, text='x' * 1000)\n"
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", script, str(theirs)], stderr=subprocess.PIPE, pass_fds=(theirs,)
    ) as one:
        assert one.stderr is not None
        assert [json.loads(line)["n"] for line in one.stderr] == list(range(2000))
    os.close(ours)
    os.close(theirs)


# --- lines that repeat ---

REPEATING = """
import asyncio, logging
from addon_operator import logs
from addon_operator.logs.repeats import Repeats

logs.configure("json", "info", with_time=True, repeats=Repeats(same=5, interval_s=INTERVAL))
log = logs.get_logger("test")
async def main():
    for number in range(1000):
        log.warning("again", module="a", attempt=number)
        logging.getLogger("asyncio").error("socket.accept() out of system resource\\nsocket: <%s>" % number)
    log.error("failed", module="b", error=OSError(24, "Too many open files"))
    await asyncio.sleep(WAIT)
asyncio.run(main())
"""


ACCEPT = "socket.accept() out of system resource"


def test_a_line_that_repeats_is_written_a_few_times_and_at_the_end_counted() -> None:
    script = REPEATING.replace("INTERVAL", "1000.0").replace("WAIT", "0")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    said = [(line["msg"], line.get("repeated")) for line in lines]
    assert said[:10] == [("again", None), (ACCEPT, None)] * 5
    assert (lines[10]["module"], lines[10]["error"]) == ("b", "OSError: Too many open files")
    assert sorted(said[11:]) == [("again", 995), (ACCEPT, 995)]
    assert all("time" in line and line["level"] in {"warning", "error"} for line in lines)


def test_what_was_held_back_is_told_after_the_interval_although_nothing_else_is_logged() -> None:
    script = REPEATING.replace("INTERVAL", "0.3").replace("WAIT", "1000")
    counted = {"again": 0, ACCEPT: 0, "failed": 0}
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        # It waits for a long time when it has written the last of them.
        while counted != {"again": 1000, ACCEPT: 1000, "failed": 1}:
            line = json.loads(process.stderr.readline())
            counted[line["msg"]] += line.get("repeated", 1)
        process.kill()
