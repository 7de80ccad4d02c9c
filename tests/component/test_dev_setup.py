"""`tools/setup.py` on a copy of the project's set-up files, with a small program in place of Go."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.devcluster.binaries import PROGRAMS

ROOT = Path(__file__).parents[2]

GO = """\
#!/bin/sh
echo "$*" >>"$CALLS"
case "$1" in
env) echo "${GO_VERSION:-go1.26.8}" ;;
list) echo "go: downloading one v1"; echo pkg/one; echo pkg/two ;;
build)
  if [ -n "$GO_FAILS" ]; then echo "one.go:3: undefined: two"; exit 2; fi
  while [ "$1" != -o ]; do shift; done
  into=$2
  shift 2
  for package; do
    [ "$package" = go.etcd.io/etcd/server/v3 ] && package=server
    printf '#!/bin/sh\\n' >"$into/${package##*/}"
    chmod +x "$into/${package##*/}"
  done ;;
esac
"""

Setup = Callable[..., subprocess.CompletedProcess[str]]


def executable(path: Path, text: str) -> Path:
    """Writes a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copies what the set-up reads."""
    root = tmp_path / "project"
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "addon_operator" / "devcluster", root / "addon_operator" / "devcluster", ignore=skip)
    for name in (
        "addon_operator/__init__.py", "addon_operator/errors.py", "addon_operator/process/__init__.py",
        "addon_operator/process/leash.py", "tools/setup.py", "tools/go.mod",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    executable(tmp_path / "go" / "go", GO)
    (tmp_path / "go" / "chmod").symlink_to(shutil.which("chmod") or "/bin/chmod")
    for name in ("requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture
def setup(project: Path, tmp_path: Path) -> Setup:
    """Runs the set-up as a newcomer's Python does: without any package, with nothing but our Go on PATH."""

    def run(step: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(tmp_path / "go"), "CALLS": str(tmp_path / "calls"), **environment}
        argv = [sys.executable, "-I", "-S", str(project / "tools" / "setup.py"), step]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[str]]:
    """Answers how Go was called since the last time."""

    def read() -> list[str]:
        path = tmp_path / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    return read


def test_programs_are_built_once(project: Path, setup: Setup, calls: Callable[[], list[str]]) -> None:
    bin_ = project / "tools" / "bin"
    ended = setup("programs")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "building etcd, " in ended.stderr
    assert "compiling: done" in ended.stderr
    assert {path.name for path in bin_.iterdir()} == {".stamp", *PROGRAMS}
    asked, listed, built = calls()
    assert (asked, listed.split()[:2]) == ("env GOVERSION", ["list", "-deps"])
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in built
    assert setup("programs").stderr == ""
    assert calls() == []


def test_only_what_is_missing_is_built(project: Path, setup: Setup, calls: Callable[[], list[str]]) -> None:
    setup("programs")
    (project / "tools" / "bin" / "kwok").unlink()
    calls()
    assert "building kwok with Go" in setup("programs").stderr
    assert calls()[-1].endswith("sigs.k8s.io/kwok/cmd/kwok")


def test_other_versions_are_built_anew(project: Path, setup: Setup, calls: Callable[[], list[str]]) -> None:
    setup("programs")
    calls()
    with (project / "tools" / "go.mod").open("a") as module:
        module.write("// another version\n")
    assert "building etcd, " in setup("programs").stderr
    assert PROGRAMS["etcd"].package in calls()[-1]


def test_programs_that_are_installed_are_not_built(
    project: Path, setup: Setup, tmp_path: Path, calls: Callable[[], list[str]]
) -> None:
    helm = executable(tmp_path / "mine" / "helm", "#!/bin/sh\necho v3.20.1\n")
    old = executable(tmp_path / "assets" / "etcd", "#!/bin/sh\necho 'etcd Version: 3.5.1'\n")
    ended = setup("programs", HELM_BIN_PATH=str(helm), KUBEBUILDER_ASSETS=str(old.parent))
    assert ended.returncode == 0
    assert not (project / "tools" / "bin" / "helm").exists()
    assert (project / "tools" / "bin" / "etcd").exists()
    assert PROGRAMS["helm"].package not in calls()[-1]


def test_a_failed_build_shows_what_the_compiler_said(project: Path, setup: Setup) -> None:
    ended = setup("programs", GO_FAILS="yes")
    assert ended.returncode == 1
    assert "one.go:3: undefined: two" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("compiling failed: go build")
    assert ended.stderr.endswith("exit code 2\n")
    assert not (project / "tools" / "bin" / "etcd").exists()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        pytest.param({"PATH": "/nowhere"}, "go is missing. Go 1.26 or later is needed to build etcd, ", id="missing"),
        pytest.param({"GO_VERSION": "go1.25.9"}, "go is too old (go1.25.9). Go 1.26 or later", id="old"),
        pytest.param({"GO_VERSION": "devel"}, "go is too old (devel). Go 1.26 or later", id="unreadable"),
    ],
)
def test_go_is_asked_for_only_when_it_is_needed(setup: Setup, environment: dict[str, str], message: str) -> None:
    ended = setup("programs", **environment)
    assert ended.returncode == 1
    assert ended.stderr.startswith(message)
    setup("programs")
    assert setup("programs", **environment).returncode == 0


def test_what_the_samples_call_is_asked_for(setup: Setup, tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    executable(commands / "bash", "#!/bin/sh\n")
    ended = setup("needs", PATH=str(commands))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[0] == "missing, the samples call it: jq"
    executable(commands / "jq", "#!/bin/sh\n")
    assert setup("needs", PATH=str(commands)).returncode == 0


def test_an_environment_that_is_complete_is_left_alone(project: Path, setup: Setup) -> None:
    wanted = hashlib.sha256(
        b"\0".join(
            [
                (project / "requirements-dev.txt").read_bytes(),
                (project / "pyproject.toml").read_bytes(),
                f"{project} {sys.version}".encode(),
            ]
        )
    )
    (project / ".venv").mkdir()
    (project / ".venv" / "stamp").write_text(wanted.hexdigest())
    ended = setup("environment")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [path.name for path in (project / ".venv").iterdir()] == ["stamp"]


def test_the_lock_has_hashes_and_names_no_index() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        lines = (ROOT / name).read_text().splitlines()
        assert all("==" in line or line.lstrip().startswith(("--hash=sha256:", "#")) for line in lines)
        assert not any("://" in line for line in lines)


def test_the_lock_has_everything_that_the_project_names() -> None:
    locked = (ROOT / "requirements-dev.txt").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for requirement in names:
        name = requirement.split(">")[0].split("=")[0].strip().lower().replace("_", "-")
        assert f"\n{name}==" in f"\n{locked}"
