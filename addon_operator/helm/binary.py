"""Which helm program is used, and what its environment looks like.

Source: contract.md 1.1 (Helm settings), 6.1 (KUBE_CONFIG), 6.3.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from addon_operator.errors import SettingsError
from addon_operator.files.digests import Identity
from addon_operator.process import child
from addon_operator.process.private_directory import PrivateDirectory

OLDEST: Final = (3, 17)
_NEWER: Final = 4
_VERSION = re.compile(r"v?(\d+)\.(\d+)\S*")
_VERSION_WITHIN_S: Final = 30.0
# Everything else named HELM_* could point helm at another cluster, namespace or storage than the operator's.
_PASSED_ON: Final = frozenset({"HELM_QPS", "HELM_BURST_LIMIT"})
_BUILT_HERE: Final = Path(__file__).resolve().parents[2] / "tools" / "bin" / "helm"


@dataclasses.dataclass(frozen=True, slots=True)
class HelmBinary:
    """A helm that can be used: its path and its version, such as `v3.21.4`."""

    path: Path
    version: str


async def find_helm(configured: Path | None, environment: Mapping[str, str], *, cache_dir: Path) -> HelmBinary:
    """Finds helm 3: HELM_BIN_PATH, else PATH, else the one that the project has built.

    Args:
        configured: HELM_BIN_PATH.
        environment: of the operator.
        cache_dir: where the version is remembered, so that a restart starts no helm.

    Raises:
        SettingsError: helm is missing, too old or too new, or HELM_DRIVER asks for a storage that is not supported;
            says what to do.
    """
    if environment.get("HELM_DRIVER", "") not in {"", "secret", "secrets"}:
        raise SettingsError("HELM_DRIVER: releases are kept in Secrets here; unset it, or set it to secret")
    path = _path(configured, environment)
    version = await _known_version(path, cache_dir / "helm-version")
    found = _VERSION.fullmatch(version)
    numbers = (int(found[1]), int(found[2])) if found else (0, 0)
    if not OLDEST <= numbers < (_NEWER, 0):
        wanted = f"helm {OLDEST[0]}.{OLDEST[1]} or later is needed, but not helm {_NEWER}"
        raise SettingsError(f"{path} is helm {version or 'of unknown version'}: {wanted}; {_ADVICE}")
    return HelmBinary(path, version)


_ADVICE: Final = "install one and set HELM_BIN_PATH to it, or build it with `make tools`"


_PLACES: Final = {
    "HELM_CACHE_HOME": "cache",
    "HELM_CONFIG_HOME": "config",
    "HELM_DATA_HOME": "data",
    "KUBECACHEDIR": "kube",
    "TMPDIR": "tmp",
}


def helm_environment(base: Mapping[str, str], cluster: Mapping[str, str], home: Path) -> dict[str, str]:
    """Returns the environment of helm.

    Args:
        base: of the operator.
        cluster: what leads to the cluster (`Credentials.child_environment`).
        home: a directory for what helm keeps between its runs, so that it needs no writable home directory.
    """
    kept = {name: text for name, text in base.items() if not name.startswith("HELM_") or name in _PASSED_ON}
    # A helm run is short: collecting garbage less often saves a sixth of its time for 8 MB of memory.
    return {"GOGC": "400", **kept, **cluster, **{name: str(home / folder) for name, folder in _PLACES.items()}}


def make_home(home: PrivateDirectory) -> None:
    """Makes the directories that `helm_environment` names, open to nobody else, unless they are there.

    Raises:
        OSError: as `PrivateDirectory.make`.
    """
    for folder in _PLACES.values():
        home.below(folder).make()


def _path(configured: Path | None, environment: Mapping[str, str]) -> Path:
    if configured is not None:
        return _executable(configured)
    found = shutil.which("helm", path=environment.get("PATH", os.defpath))
    if found is None and not _BUILT_HERE.is_file():
        raise SettingsError(f"helm was not found on PATH: {_ADVICE}")
    return Path(found) if found else _executable(_BUILT_HERE)


def _executable(path: Path) -> Path:
    if not path.is_file():
        raise SettingsError(f"HELM_BIN_PATH: {path} is not a file: {_ADVICE}")
    if not os.access(path, os.X_OK):
        raise SettingsError(f"HELM_BIN_PATH: {path} is not executable: {_ADVICE}")
    return path.absolute()


async def _known_version(path: Path, note: Path) -> str:
    """Asks helm for its version unless the file is the one that was asked last time."""
    stamp = " ".join(map(str, (path, *Identity.of(path), "")))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = note.read_text(encoding="utf-8")
        if text.startswith(stamp):
            return text.removeprefix(stamp)
    version = await _version(path)
    with contextlib.suppress(OSError):
        note.write_text(stamp + version, encoding="utf-8")
    return version


async def _version(path: Path) -> str:
    argv = [str(path), "version", "--template", "{{.Version}}"]
    try:
        ended, output = await child.capture(argv, env=dict(os.environ), timeout_s=_VERSION_WITHIN_S, max_bytes=4096)
    except OSError as error:
        raise SettingsError(f"{path} cannot be started: {error.strerror}: {_ADVICE}") from error
    return output.decode("utf-8", "replace").strip() if ended.code == 0 else ""
