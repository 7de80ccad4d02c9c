"""`make test-robustness`: the long part, all files of it, two at a time, with one seed.

Each file is a pytest process of its own with its own control plane. Those of one lane follow each other; both lanes
together fill two cores. The seed is printed first and last; with it, each file does the same again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
LANES: Final = (
    ("test_interruptions.py", "test_states.py"),
    ("test_api_faults.py", "test_soak.py"),
)


def run_lane(files: tuple[str, ...], flags: list[str]) -> bool:
    """Runs some test files, one after the other, and shows what each says; returns whether all passed."""
    passed = True
    for name in files:
        if not (_HERE / name).exists():
            continue
        began = time.monotonic()
        argv = [sys.executable, "-m", "pytest", "--robustness", "-rA", "--no-header", *flags, str(_HERE / name)]
        ended = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        # All of it at once: the lanes do not mix their lines.
        _say(f"{ended.stdout}\n== {name}: {time.monotonic() - began:.0f} s, exit code {ended.returncode}")
        passed = passed and ended.returncode == 0
    return passed


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Runs the lanes side by side; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make test-robustness")
    parser.add_argument("--seed", type=int, default=None, help="what everything random is drawn from")
    given, rest = parser.parse_known_args()
    seed = secrets.randbelow(10**6) if given.seed is None else int(given.seed)
    _say(f"== seed {seed}; to repeat: make test-robustness SEED={seed}")
    with concurrent.futures.ThreadPoolExecutor(len(LANES)) as pool:
        results = [pool.submit(run_lane, files, [f"--seed={seed}", *rest]) for files in LANES]
        passed = all(result.result() for result in results)
    _say(f"== seed {seed}: {'passed' if passed else 'failed'}; to repeat: make test-robustness SEED={seed}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
