"""The shell protocol: how a call becomes files and variables of a process, and how files become its result.

Knows nothing of processes. All files of one run lie in a fresh private directory; what a hook did to them in the
meantime is taken as it is: never trusted, never waited for, never read beyond a bound (contract.md 2.4).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from addon_operator.documents import jsondoc
from addon_operator.documents.jsondoc import JsonValue
from addon_operator.errors import BadReply, HookUnreachable
from addon_operator.hooks.call import Effects, EnabledAnswer, HookCall, HookId, Response
from addon_operator.process.private_directory import PrivateDirectory
from addon_operator.values import patches
from addon_operator.values.patches import Operation, PatchError

MAX_RESULT_BYTES: Final = 16 * 2**20

_VALUES_PATCH: Final = "VALUES_JSON_PATCH_PATH"
_CONFIG_PATCH: Final = "CONFIG_VALUES_JSON_PATCH_PATH"
_METRICS: Final = "METRICS_PATH"
_OBJECT_PATCH: Final = "KUBERNETES_PATCH_PATH"
_ENABLED: Final = "MODULE_ENABLED_RESULT"
_REASON: Final = "MODULE_ENABLED_REASON"
_RESPONSES: Final[Mapping[Response, str]] = {
    "admission": "ADMISSION_RESPONSE_PATH",
    "conversion": "CONVERSION_RESPONSE_PATH",
}
_OTHER_NAMES: Final = {"ADMISSION_RESPONSE_PATH": "VALIDATING_RESPONSE_PATH"}

Content: TypeAlias = Iterable[bytes]
"""What is in a file, in pieces: a context file may hold objects of many megabytes, which are not copied for it."""


def hook_input(call: HookCall) -> dict[str, Content]:
    """Returns which variables a hook gets and what is in their files; result files exist and are empty."""
    inputs: dict[str, Content] = {
        "BINDING_CONTEXT_PATH": call.contexts,
        "VALUES_PATH": (jsondoc.dumps(call.values),),
        "CONFIG_VALUES_PATH": (jsondoc.dumps(call.config_values),),
    }
    results = (_VALUES_PATCH, _CONFIG_PATCH, _METRICS, _OBJECT_PATCH, *_RESPONSES.values())
    return inputs | dict.fromkeys(results, ())


def enabled_input(*, values: JsonValue, config_values: JsonValue) -> dict[str, Content]:
    """Returns which variables an `enabled` script gets and what is in their files."""
    return {
        "VALUES_PATH": (jsondoc.dumps(values),),
        "CONFIG_VALUES_PATH": (jsondoc.dumps(config_values),),
        _ENABLED: (),
        _REASON: (),
    }


class Workspace:
    """The files of one run, one for each variable."""

    def __init__(self, tmp_dir: PrivateDirectory, hook: HookId, files: Mapping[str, Content]) -> None:
        """Creates the directory (mode 0700) and the files (0600).

        Args:
            tmp_dir: where.
            hook: whose, for names and messages.
            files: variable -> content.

        Raises:
            HookUnreachable: the files cannot be written.
        """
        self._hook = hook
        label = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{hook.module or 'global'}-{hook.name}")[-80:]
        try:
            self.directory = tmp_dir.make_unique(f"{label}-")
        except OSError as error:
            raise self._unwritable(tmp_dir.path, error) from error
        self._paths = {variable: self.directory / _file_name(variable) for variable in files}
        try:
            for variable, content in files.items():
                _write(self._paths[variable], content)
        except OSError as error:
            self.remove_tree()
            raise self._unwritable(self.directory, error) from error

    def environment(self) -> dict[str, str]:
        """Returns the variables that name the files of a process."""
        paths = {variable: str(path) for variable, path in self._paths.items()}
        return paths | {other: paths[name] for name, other in _OTHER_NAMES.items() if name in paths}

    def effects(self, response: Response | None) -> Effects:
        """Reads what a hook asks for.

        Args:
            response: the response that the API server waits for; the other response files are not read.

        Raises:
            BadReply: a result file is not usable; the message names it.
        """
        self._open_up()
        effects = Effects(
            values_patch=self._patch(_VALUES_PATCH),
            config_patch=self._patch(_CONFIG_PATCH),
            metrics=self._read(_METRICS),
            object_patch=self._read(_OBJECT_PATCH),
            response=self._read(_RESPONSES[response]) if response else b"",
        )
        self._check_still_there()
        return effects

    def object_patch(self) -> bytes:
        """Reads what a hook asks for about objects, whatever became of the rest.

        Raises:
            BadReply: the file is not usable.
        """
        self._open_up()
        found = self._read(_OBJECT_PATCH)
        self._check_still_there()
        return found

    def answer(self) -> EnabledAnswer:
        """Reads the result of an `enabled` script.

        Raises:
            BadReply: a result file is not usable, or is neither `true` nor `false`.
        """
        self._open_up()
        word, reason = self._read(_ENABLED).strip(), self._read(_REASON)
        self._check_still_there()
        if word not in {b"true", b"false"}:
            found = "is empty" if not word else "holds something else"
            raise BadReply(f"{self._hook}: {_ENABLED} must be true or false, but {found}")
        return EnabledAnswer(word == b"true", reason.decode("utf-8", "replace").strip())

    def remove(self) -> bool:
        """Removes the files and the directory; False when there is more or less than we made (see `remove_tree`)."""
        try:
            for path in self._paths.values():
                path.unlink()
            self.directory.rmdir()
        except OSError:
            return False
        return True

    def remove_tree(self) -> None:
        """Removes whatever is at the place of the directory; may take long.

        Raises:
            HookUnreachable: something is left.
        """
        self._open_up()
        if self.directory.is_dir() and not self.directory.is_symlink():
            for root, names, _ in os.walk(self.directory):
                for name in names:
                    _open_up(Path(root, name))
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                self.directory.unlink()
        if os.path.lexists(self.directory):
            raise HookUnreachable(f"{self._hook}: {self.directory} cannot be removed")

    def _open_up(self) -> None:
        with contextlib.suppress(OSError):
            _open_up(self.directory)

    def _check_still_there(self) -> None:
        """Tells a hook that removed its result files from one whose results were removed under its feet."""
        if self.directory.is_symlink() or not self.directory.is_dir():
            raise BadReply(f"{self._hook}: the directory of its files was removed while it ran, its results are lost")

    def _patch(self, variable: str) -> tuple[Operation, ...]:
        try:
            return patches.parse(self._read(variable), variable)
        except PatchError as error:
            raise BadReply(f"{self._hook}: {error}") from error

    def _read(self, variable: str) -> bytes:
        """Reads a result file; one that the hook removed is empty."""
        try:
            # Opening a FIFO or a device must not wait, and a link may lead anywhere.
            fd = os.open(self._paths[variable], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError:
            return b""
        except OSError as error:
            trouble = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
            raise BadReply(f"{self._hook}: {variable} {trouble}") from error
        try:
            return self._read_regular(fd, variable)
        finally:
            os.close(fd)

    def _read_regular(self, fd: int, variable: str) -> bytes:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise BadReply(f"{self._hook}: {variable} is not a regular file any more")
        if found.st_size > MAX_RESULT_BYTES:
            raise BadReply(f"{self._hook}: {variable} has {found.st_size} bytes, at most {MAX_RESULT_BYTES} are read")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(found.st_size)

    def _unwritable(self, where: Path, error: OSError) -> HookUnreachable:
        path = error.filename or where
        return HookUnreachable(f"{self._hook}: its files cannot be written: {path}: {error.strerror}")


def _file_name(variable: str) -> str:
    return variable.removesuffix("_PATH").lower().replace("_", "-")


def _write(path: Path, content: Content) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.writelines(content)


def _open_up(directory: Path) -> None:
    """Gives us back the rights to a directory; never follows a link, which may lead anywhere."""
    mode = directory.lstat().st_mode
    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
        directory.chmod(0o700)
