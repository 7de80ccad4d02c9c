"""What is read from disk at the start: modules, and global hooks with their configuration."""

from __future__ import annotations

import dataclasses

from addon_operator.errors import HookConfigError
from addon_operator.hooks.catalog import HookCatalog, global_root
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.hook import LoadedHooks
from addon_operator.logs import get_logger
from addon_operator.metrics.operator import Metrics
from addon_operator.modules.loader import ModuleLoader, Scan
from addon_operator.settings import Settings

log = get_logger("operator")


@dataclasses.dataclass(frozen=True, slots=True)
class Files:
    """What was read, and what reads it again later; `hooks` are the global ones."""

    scan: Scan
    loader: ModuleLoader
    catalog: HookCatalog
    hooks: LoadedHooks


async def read_files(settings: Settings, engine: HookEngine, metrics: Metrics) -> Files:
    """Reads modules and global hooks.

    Raises:
        AddonOperatorError: something cannot be used; names the file.
    """
    loader = ModuleLoader(
        modules_dirs=settings.modules_dirs,
        global_hooks_dir=settings.global_hooks_dir,
        default_order=settings.unnumbered_modules_order,
        strict_values=settings.strict_values,
    )
    scan = loader.scan()
    root = global_root(settings.global_hooks_dir)
    if not root.is_dir():
        log.info("no global hooks: the directory does not exist", path=str(root))
    catalog = HookCatalog(engine)
    hooks = await catalog.load(root, module=None)
    if hooks.errors:
        raise HookConfigError("\n".join(hooks.errors))
    for warning in (*scan.warnings, *hooks.warnings):
        log.warning("something in the files has no effect", reason=warning)
    for hook in hooks.hooks:
        metrics.hook_runs.bindings(None, hook.id.name, len(hook.config.bindings()))
    log.info("files read", modules=len(scan.modules), global_hooks=len(hooks.hooks))
    return Files(scan, loader, catalog, hooks)
