"""Finding hooks, asking them, remembering what they said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from addon_operator.hooks import catalog
from addon_operator.hooks.call import HookId
from addon_operator.hooks.catalog import HookCatalog
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.hook import LoadedHooks
from tests.component.hooks.conftest import WriteHook
from tests.fakes.git_sync import GitSync


def _config(text: str) -> str:
    return f"[ \"$1\" = --config ] && echo '{text}'"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "001-alpha" / "hooks"


def _relative(root: Path) -> tuple[list[str], list[str]]:
    found, warnings = catalog.find_hooks(root)
    return [str(file.path.relative_to(root)) for file in found], [line.replace(f"{root}/", "") for line in warnings]


def test_what_is_a_hook(write_hook: WriteHook, root: Path) -> None:
    for name in ("b.sh", "a", "a/c.sh", "b-dir/x.py", ".hidden", ".git/x", "lib/x.sh", "sub/lib/x.sh", "venv/bin/x",
                 "x.yaml", "x.json", "x.md", "x.txt", "z.yml"):  # fmt: skip
        if name != "a":
            write_hook("", f"hooks/{name}")
    write_hook("", "hooks/sub/plain.sh", mode=0o644)
    (root / "link.sh").symlink_to(root / "b.sh")
    (root / "link-dir").symlink_to(root / "b-dir")
    (root / "broken").symlink_to(root / "nowhere")
    assert _relative(root) == (
        ["a/c.sh", "b-dir/x.py", "b.sh", "z.yml"],
        ["link.sh: ignored: a symbolic link is not a hook", "sub/plain.sh: ignored: not executable"],
    )


def test_no_directory_no_hooks(root: Path) -> None:
    assert _relative(root) == ([], [])


@pytest.mark.parametrize(
    ("path", "root", "name"),
    [
        pytest.param("/m/001-a/hooks/sub/x.sh", "/m/001-a/hooks", "hooks/sub/x.sh", id="module"),
        pytest.param("/global-hooks/x.sh", "/global-hooks", "x.sh", id="global without hooks directory"),
        pytest.param("/global-hooks/hooks/x.sh", "/global-hooks/hooks", "hooks/x.sh", id="global"),
        pytest.param("/m/001-a/hooks/hooks/x.sh", "/m/001-a/hooks", "hooks/hooks/x.sh", id="first of two"),
        pytest.param("modules/a/hooks/x.sh", "modules/a/hooks", "hooks/x.sh", id="relative"),
    ],
)
def test_names(path: str, root: str, name: str) -> None:
    assert catalog.hook_name(Path(path), Path(root)) == name


def test_where_global_hooks_are(tmp_path: Path) -> None:
    assert catalog.global_root(tmp_path) == tmp_path
    (tmp_path / "hooks").mkdir()
    assert catalog.global_root(tmp_path) == tmp_path / "hooks"


async def test_load_sorts_by_order_then_by_path(engine: HookEngine, write_hook: WriteHook, root: Path) -> None:
    for name, order in {"c": 1, "b": 5, "a": 5, "z/a": -1}.items():
        write_hook(_config(f"{{configVersion: v1, beforeHelm: {order}}}"), f"hooks/{name}.sh")
    write_hook(_config("{configVersion: v1, onStartup: 1}"), "hooks/other.sh")
    write_hook("", "hooks/note", mode=0o600)
    loaded = await HookCatalog(engine).load(root, module="alpha")
    assert [hook.id.name for hook in loaded.hooks] == [f"hooks/{n}.sh" for n in ("a", "b", "c", "other", "z/a")]
    assert [hook.id.name for hook in loaded.bound_to("beforeHelm")] == [f"hooks/{n}.sh" for n in ("z/a", "c", "a", "b")]
    assert [hook.id for hook in loaded.bound_to("onStartup")] == [HookId("alpha", "hooks/other.sh")]
    assert loaded.bound_to("afterHelm") == ()
    assert len(loaded.warnings) == 1


async def test_nothing_to_load(engine: HookEngine, root: Path) -> None:
    assert await HookCatalog(engine).load(root, module=None) == LoadedHooks()


async def test_all_errors_of_all_hooks_are_shown(engine: HookEngine, write_hook: WriteHook, root: Path) -> None:
    write_hook(_config("{configVersion: v1, beforeAll: x, y: 1}"), "hooks/a.sh")
    write_hook("echo trouble >&2; exit 1", "hooks/b.sh")
    write_hook(_config("{configVersion: v1, onStartup: 1}"), "hooks/c.sh")
    write_hook(_config('{configVersion: v1, onStartup: 1, schedule: [{crontab: "@often"}]}'), "hooks/d.sh")
    loaded = await HookCatalog(engine).load(root, module=None)
    assert [hook.id.name for hook in loaded.hooks] == ["hooks/c.sh"]
    assert "\n".join(loaded.errors).split("\n") == [
        "global hook hooks/a.sh: bad configuration:",
        "  - beforeAll: must be an integer, not a string",
        "  - y: unknown field",
        "global hook hooks/b.sh: --config ended with exit code 1: trouble",
        "global hook hooks/d.sh: bad configuration:",
        "  - schedule[0].crontab: unknown shortcut '@often'",
    ]


async def test_unchanged_hooks_are_not_asked_again(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, root: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    hooks = HookCatalog(make_engine(ASKED=str(asked)))
    body = "echo $0 >> $ASKED; echo '{configVersion: v1, onStartup: %d}'"
    write_hook(body % 1, "hooks/a.sh")
    write_hook(body % 2, "hooks/b.sh")
    await hooks.load(root, module="alpha")
    first = await hooks.load(root, module="alpha")
    assert len(asked.read_text().split()) == 2
    write_hook(body % 30, "hooks/b.sh")
    second = await hooks.load(root, module="alpha")
    assert len(asked.read_text().split()) == 3
    assert [hook.config.order("onStartup") for hook in first.hooks + second.hooks] == [1, 2, 1, 30]


async def test_a_hook_of_another_commit_is_asked_again(engine: HookEngine, tmp_path: Path) -> None:
    """Its times and size are those of the former one."""
    repository, name = GitSync(tmp_path), "alpha/hooks/a.sh"
    hooks = HookCatalog(engine)
    for order in (1, 2):
        text = f"#!/bin/sh\necho '{{configVersion: v1, onStartup: {order}}}'\n"
        repository.check_out({name: text}, executable=frozenset({name}))
        loaded = await hooks.load(repository.link / "alpha" / "hooks", module="alpha")
        assert [hook.config.order("onStartup") for hook in loaded.hooks] == [order]


async def test_a_hook_is_asked_again_when_what_is_beside_it_may_have_changed(
    make_engine: Callable[..., HookEngine], tmp_path: Path
) -> None:
    """The same text in another commit may read other files of that commit."""
    asked, repository, name = tmp_path / "asked", GitSync(tmp_path), "alpha/hooks/a.sh"
    hooks = HookCatalog(make_engine(ASKED=str(asked)))
    for _ in range(2):
        text = "#!/bin/sh\necho $0 >> $ASKED; echo '{configVersion: v1, onStartup: 1}'\n"
        repository.check_out({name: text}, executable=frozenset({name}))
        await hooks.load(repository.link / "alpha" / "hooks", module="alpha")
    assert len(asked.read_text().split()) == 2


async def test_a_failing_hook_is_asked_again(
    engine: HookEngine, write_hook: WriteHook, root: Path, tmp_path: Path
) -> None:
    write_hook(f"[ -e {tmp_path}/ready ] && echo '{{configVersion: v1, onStartup: 1}}'", "hooks/a.sh")
    hooks = HookCatalog(engine)
    assert (await hooks.load(root, module="alpha")).errors
    (tmp_path / "ready").touch()
    assert len((await hooks.load(root, module="alpha")).hooks) == 1


async def test_not_more_at_once_than_allowed(
    make_engine: Callable[..., HookEngine], write_hook: WriteHook, root: Path, tmp_path: Path
) -> None:
    for number in range(6):
        write_hook(
            "mkdir $RUNNING/$$; sleep 0.05; ls $RUNNING | wc -l >> $COUNTS; rmdir $RUNNING/$$\n"
            "echo '{configVersion: v1, onStartup: 1}'",
            f"hooks/{number}.sh",
        )
    (tmp_path / "running").mkdir()
    engine = make_engine(RUNNING=str(tmp_path / "running"), COUNTS=str(tmp_path / "counts"))
    await HookCatalog(engine, parallelism=2).load(root, module="alpha")
    counts = [int(count) for count in (tmp_path / "counts").read_text().split()]
    assert len(counts) == 6
    assert max(counts) <= 2
