"""The programs that the project needs, and where they are found; `tools/setup.py` builds the missing ones.

Nothing but the standard library is needed, because the set-up calls this before anything is installed.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from addon_operator.devcluster.errors import DevClusterError

KUBERNETES: Final = (1, 36, 3)
HELM: Final = (3, 21, 4)
TOOLS: Final = Path(__file__).parents[2] / "tools"
BUILT: Final = TOOLS / "bin"

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        name: of the executable.
        package: the Go package that it is built from.
        built_as: the name of the executable that `go install` makes.
        ask: the arguments that print its version.
        at_least: the oldest supported version of a foreign build.
        below: the first version that is not supported.
    """

    name: str
    package: str
    built_as: str
    ask: tuple[str, ...]
    at_least: Version
    below: Version


def _kubernetes(name: str) -> Program:
    # Parts of one control plane must agree on the minor version.
    return Program(name, f"k8s.io/kubernetes/cmd/{name}", name, ("--version",), (1, 36, 0), (1, 37, 0))


PROGRAMS: Final[Mapping[str, Program]] = {
    program.name: program
    for program in (
        Program("etcd", "go.etcd.io/etcd/server/v3", "server", ("--version",), (3, 6, 0), (4, 0, 0)),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", "kwok", ("--version",), (0, 7, 0), (1, 0, 0)),
        Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", "kubectl", ("version", "--client"), (1, 35, 0), (1, 38, 0)),
        Program("helm", "helm.sh/helm/v3/cmd/helm", "helm", ("version", "--short"), (3, 17, 0), (4, 0, 0)),
    )
}


def find(name: str, *, environment: Mapping[str, str] = os.environ, built: Path = BUILT) -> Path | None:
    """Finds one program of `PROGRAMS`; returns None if no supported version is found.

    Order: HELM_BIN_PATH (helm), `$KUBEBUILDER_ASSETS`, our own build, `PATH`.
    """
    program = PROGRAMS[name]
    for candidate in _candidates(program, environment, built):
        if candidate.parent == built or fits(program, candidate):
            return candidate.absolute()
    return None


def require(name: str, *, environment: Mapping[str, str] = os.environ, built: Path = BUILT) -> Path:
    """Finds one program of `PROGRAMS`, as `find` does.

    Raises:
        DevClusterError: it is nowhere.
    """
    found = find(name, environment=environment, built=built)
    if found is None:
        raise DevClusterError(f"{name} is missing: run `make tools` in the project's directory")
    return found


def fits(program: Program, path: Path) -> bool:
    """Returns whether a foreign build has a supported version."""
    version = version_of(program, path)
    return version is not None and program.at_least <= version < program.below


def version_of(program: Program, path: Path) -> Version | None:
    """Runs an executable to get its version; returns None if it does not print one."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _ask(str(path), program.ask, status.st_mtime_ns)


@functools.cache
def _ask(path: str, arguments: tuple[str, ...], _mtime_ns: int) -> Version | None:
    try:
        answer = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"v?(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _candidates(program: Program, environment: Mapping[str, str], built: Path) -> Iterator[Path]:
    named = []
    if program.name == "helm" and environment.get("HELM_BIN_PATH"):
        named.append(Path(environment["HELM_BIN_PATH"]))
    if environment.get("KUBEBUILDER_ASSETS"):
        named.append(Path(environment["KUBEBUILDER_ASSETS"]) / program.name)
    for path in [*named, built / program.name, built / program.built_as]:
        if path.is_file() and os.access(path, os.X_OK):
            yield path
    on_path = shutil.which(program.name, path=environment.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path)
