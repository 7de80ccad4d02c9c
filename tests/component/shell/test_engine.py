"""Hooks of both libraries, run by the operator's own engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from addon_operator.errors import HookTimedOut
from addon_operator.hooks.call import HookCall, HookId
from addon_operator.hooks.engine import HookEngine
from addon_operator.hooks.transport_local import LocalTransport
from addon_operator.kube import patch_ops
from addon_operator.process.private_directory import PrivateDirectory
from addon_operator.values.patches import Operation
from tests.component.shell.bench import VALUES, HookBench
from tests.component.shell.conftest import LIBRARY

BASH = f"""#!/usr/bin/env bash
set -Eeuo pipefail
source '{LIBRARY}'
__config__() {{
  echo '{{"configVersion": "v1", "beforeHelm": 10}}'
}}
__before_helm() {{
  values::set myModule.name "$(module::name)"
  values::set --config myModule.kept ü
  metrics::set m 1
}}
hook::run "$@"
"""

PYTHON = f"""#!{sys.executable}
from addon_operator.sdk import BeforeHelm, Context, hook

@hook(BeforeHelm(10))
def main(ctx: Context) -> None:
    ctx.values["myModule.name"] = ctx.module
    ctx.config_values["myModule.kept"] = "ü"
    ctx.metrics.set("m", 1)

if __name__ == "__main__":
    main()
"""


BASH_SLOW = f"""#!/usr/bin/env bash
set -Eeuo pipefail
source '{LIBRARY}'
__main__() {{
  values::set myModule.a 1
  kubernetes::merge_patch --subresource status --ignore-hook-error Thing t '{{"status": {{"error": "slow"}}}}'
  kubernetes::delete Pod p
  sleep 1000
}}
hook::run "$@"
"""

PYTHON_SLOW = f"""#!{sys.executable}
import time
from addon_operator.sdk import BeforeHelm, Context, hook

@hook(BeforeHelm(10))
def main(ctx: Context) -> None:
    ctx.values["myModule.a"] = 1
    patch = {{"status": {{"error": "slow"}}}}
    ctx.kube.merge_patch("Thing", "t", patch, subresource="status", ignore_hook_error=True)
    ctx.kube.delete("Pod", "p")
    time.sleep(1000)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def engine(tmp_path: Path) -> HookEngine:
    return HookEngine(
        transport=LocalTransport(),
        tmp_dir=PrivateDirectory(tmp_path / "tmp"),
        environment={"PATH": os.environ["PATH"]},
        keep_files=False,
        kill_grace_s=60,
        proxy_json=False,
        config_timeout_s=60,
        enabled_timeout_s=60,
    )


def call(hook: HookId, path: Path, *, timeout_s: float = 60) -> HookCall:
    contexts = (b'[{"binding":"beforeHelm","snapshots":{}}]',)
    return HookCall(hook, path, contexts, VALUES, {"global": {}, "myModule": {}}, timeout_s)


@pytest.mark.parametrize(("name", "text"), [("hook.sh", BASH), ("hook.py", PYTHON)], ids=["bash", "python"])
async def test_hook(engine: HookEngine, bench: HookBench, tmp_path: Path, name: str, text: str) -> None:
    hook, path = HookId("my-module", f"hooks/{name}"), bench.write(name, text)
    config = await engine.configure(path, hook, "module")
    assert config.order("beforeHelm") == 10
    effects = (await engine.run(call(hook, path))).effects
    assert effects.values_patch == (Operation("add", "/myModule/name", "my-module"),)
    assert effects.config_patch == (Operation("add", "/myModule/kept", "ü"),)
    assert effects.metrics
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(("name", "text"), [("hook.sh", BASH_SLOW), ("hook.py", PYTHON_SLOW)], ids=["bash", "python"])
async def test_what_is_to_be_done_all_the_same_is_known_at_the_deadline(
    engine: HookEngine, bench: HookBench, name: str, text: str
) -> None:
    hook, path = HookId("my-module", f"hooks/{name}"), bench.write(name, text)
    object_patch = b""
    for timeout_s in (1, 4, 16, 60):  # a busy machine may take that long to start it
        with pytest.raises(HookTimedOut) as caught:
            await engine.run(call(hook, path, timeout_s=timeout_s))
        object_patch = caught.value.object_patch
        if object_patch.count(b"\n") == 2:
            break
    asked = patch_ops.despite_hook_error(patch_ops.parse(object_patch, name))
    assert [str(one.common.target) for one in asked] == ["Thing/t"]
