#!/usr/bin/env python3
"""Sets the project up, and repeats nothing that is done. Called by the Makefile; needs only the standard library.

tools/setup.py environment   .venv/ with everything in requirements-dev.txt, and the project itself
tools/setup.py programs      tools/bin/ with the programs that are not installed (needs Go)
tools/setup.py needs         looks for the programs that the samples call
"""

from __future__ import annotations

import hashlib
import os
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 -- this is who tells
    sys.exit(
        f"Python 3.11 or later is needed; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=python3.12"
    )

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ENVIRONMENT: Final = ROOT / ".venv"
LIVE: Final = sys.stderr.isatty()
EVERY_S: Final = 0.2 if LIVE else 15.0
GO: Final = (1, 26)

sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True
from addon_operator.devcluster import binaries  # noqa: E402 -- it is not installed yet


class Display:
    """What is going on, how far it is, how long it takes: one live line on a terminal, else a line every 15 s."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = self._shown = time.monotonic()
        self._write("")

    def update(self, progress: str) -> None:
        """Shows how far it is, if the last time is long enough ago."""
        if time.monotonic() - self._shown >= EVERY_S:
            self._write(progress)

    def end(self, result: str) -> None:
        """Shows how it ended."""
        self._write(result, last=True)

    def _write(self, progress: str, *, last: bool = False) -> None:
        self._shown = time.monotonic()
        parts = [progress, f"{self._shown - self._started:.0f} s"]
        text = f"{self._title}: {', '.join(part for part in parts if part)}"
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}" + ("\n" if last else "") if LIVE else f"{text}\n")
        sys.stderr.flush()


def run(title: str, argv: Sequence[str], progress: Callable[[str], str], *, cwd: Path = ROOT) -> list[str]:
    """Runs a command under a display and answers its output; ends the program if it fails.

    Args:
        title: what it does.
        argv: the command.
        progress: takes each line of output, answers how far the command is.
        cwd: where.
    """
    display = Display(title)
    output: list[str] = []
    shown = ""
    with subprocess.Popen(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment()
    ) as child:
        try:
            for lines in _lines(child):
                for line in lines:
                    output.append(line)
                    shown = progress(line)
                display.update(shown)
        except BaseException:
            child.terminate()
            raise
    if child.returncode != 0:
        display.end("failed")
        sys.exit("\n".join([*output[-40:], f"{title} failed: {' '.join(argv[:4])} ...: exit code {child.returncode}"]))
    display.end("done")
    return output


def _lines(child: subprocess.Popen[bytes]) -> Iterator[list[str]]:
    """Yields the lines as they come, and an empty list whenever there is time to update the display."""
    assert child.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(EVERY_S):
                yield []
                continue
            data = os.read(child.stdout.fileno(), 65536)
            *lines, rest = (rest + data).split(b"\n")
            yield [line.decode("utf-8", "replace") for line in lines]
            if not data:
                return


def _environment() -> Mapping[str, str]:
    return {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def environment() -> None:
    """Makes .venv, unless it has been made from the same requirements, by the same Python, in the same place."""
    wanted = _digest(
        (ROOT / "requirements-dev.txt").read_bytes(),
        (ROOT / "pyproject.toml").read_bytes(),
        f"{ROOT} {sys.version}".encode(),
    )
    stamp = ENVIRONMENT / "stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    python = str(ENVIRONMENT / "bin" / "python")
    if not _works(python) or stamp.exists():
        if subprocess.run(
            [sys.executable, "-c", "import ensurepip, venv"], capture_output=True, check=False
        ).returncode:
            sys.exit(f"{sys.executable} cannot make virtual environments: install python3-venv")
        run("making .venv", [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], lambda _: "")
    install = [python, "-m", "pip", "install", "--progress-bar", "off"]
    locked = [*install, "--require-hashes", "-r", "requirements-dev.txt"]
    run("installing the packages of requirements-dev.txt", locked, _Counter("Collecting ", "packages found"))
    run("installing the project", [*install, "--no-build-isolation", "--no-deps", "-e", "."], lambda _: "")
    stamp.write_text(wanted)


def _works(python: str) -> bool:
    try:
        return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class _Counter:
    """Counts lines that begin with a word."""

    def __init__(self, begin: str, what: str) -> None:
        self.count = 0
        self._begin = begin
        self._what = what

    def __call__(self, line: str) -> str:
        self.count += line.startswith(self._begin)
        return f"{self.count} {self._what}" if self.count else ""


def programs() -> None:
    """Builds the programs that are nowhere, and those in tools/bin that were built from another go.mod."""
    flags = ["-trimpath", "-ldflags", _ldflags()]
    wanted = _digest((binaries.TOOLS / "go.mod").read_bytes(), " ".join(flags).encode())
    stamp = binaries.BUILT / ".stamp"
    if stamp.exists() and stamp.read_text() != wanted:
        for program in binaries.PROGRAMS.values():
            (binaries.BUILT / program.name).unlink(missing_ok=True)
            (binaries.BUILT / program.built_as).unlink(missing_ok=True)
    missing = [program for name, program in binaries.PROGRAMS.items() if binaries.find(name) is None]
    if missing:
        _build(missing, flags)
    binaries.BUILT.mkdir(parents=True, exist_ok=True)
    stamp.write_text(wanted)


def _build(missing: Sequence[binaries.Program], flags: Sequence[str]) -> None:
    names = ", ".join(program.name for program in missing)
    _check_go(names)
    sys.stderr.write(f"building {names} with Go, which takes some minutes the first time\n")
    packages = [program.package for program in missing]
    listed = run(
        "downloading Go modules",
        ["go", "list", "-deps", *packages],
        _Counter("go: downloading ", "modules"),
        cwd=binaries.TOOLS,
    )
    total = sum(not line.startswith("go: ") for line in listed)
    parts = binaries.BUILT / ".parts"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    run(
        "compiling",
        ["go", "build", "-v", *flags, "-o", f"{parts}/", *packages],
        _Counter("", f"of at most {total} packages"),
        cwd=binaries.TOOLS,
    )
    for program in missing:
        (parts / program.built_as).rename(binaries.BUILT / program.name)
    parts.rmdir()


def _ldflags() -> str:
    """Answers the flags that make the programs say their version, and leave debugging tables out."""
    major, minor, _ = binaries.KUBERNETES
    variables = {
        "k8s.io/component-base/version.gitVersion": "v" + ".".join(map(str, binaries.KUBERNETES)),
        "k8s.io/component-base/version.gitMajor": str(major),
        "k8s.io/component-base/version.gitMinor": str(minor),
        "helm.sh/helm/v3/internal/version.version": "v" + ".".join(map(str, binaries.HELM)),
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in variables.items())])


def _check_go(names: str) -> None:
    advice = (
        f"Go {GO[0]}.{GO[1]} or later is needed to build {names}.\n"
        "Programs that are installed are used instead: set HELM_BIN_PATH, KUBEBUILDER_ASSETS or PATH."
    )
    if shutil.which("go") is None:
        sys.exit(f"go is missing. {advice}")
    asked = subprocess.run(
        ["go", "env", "GOVERSION"],  # noqa: S607 -- the one on PATH is meant
        cwd=binaries.TOOLS,
        capture_output=True,
        text=True,
        check=False,
    )
    numbers = asked.stdout.strip().removeprefix("go").split(".")[:2]
    if asked.returncode != 0 or not all(number.isdigit() for number in numbers) or tuple(map(int, numbers)) < GO:
        sys.exit(f"go is too old ({asked.stdout.strip() or asked.stderr.strip()}). {advice}")


def needs() -> None:
    """Ends the program if something is missing that hooks of the samples call."""
    missing = [name for name in ("bash", "jq") if shutil.which(name) is None]
    if missing:
        words = " ".join(missing)
        sys.exit(f"missing, the samples call it: {words}\nInstall it first, for example: apt-get install {words}")


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def main() -> None:
    """Does what is named on the command line, in that order."""
    steps = {"environment": environment, "programs": programs, "needs": needs}
    unknown = [name for name in sys.argv[1:] if name not in steps]
    if unknown or len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        for name in sys.argv[1:]:
            steps[name]()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted")


if __name__ == "__main__":
    main()
