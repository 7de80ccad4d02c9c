"""Hooks of both libraries, run by the operator's own engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from addon_operator.hooks.call import HookCall, HookId
from addon_operator.hooks.engine import HookEngine
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


@pytest.mark.parametrize(("name", "text"), [("hook.sh", BASH), ("hook.py", PYTHON)], ids=["bash", "python"])
async def test_hook(bench: HookBench, tmp_path: Path, name: str, text: str) -> None:
    engine = HookEngine(
        tmp_dir=tmp_path / "tmp",
        environment={"PATH": os.environ["PATH"]},
        keep_files=False,
        kill_grace_s=60,
        proxy_json=False,
        config_timeout_s=60,
        enabled_timeout_s=60,
    )
    hook, path = HookId("my-module", f"hooks/{name}"), bench.write(name, text)
    config = await engine.configure(path, hook, "module")
    assert config.order("beforeHelm") == 10
    contexts = (b'[{"binding":"beforeHelm","snapshots":{}}]',)
    effects = (await engine.run(HookCall(hook, path, contexts, VALUES, {"global": {}, "myModule": {}}, 60))).effects
    assert effects.values_patch == (Operation("add", "/myModule/name", "my-module"),)
    assert effects.config_patch == (Operation("add", "/myModule/kept", "ü"),)
    assert effects.metrics
    assert list((tmp_path / "tmp").iterdir()) == []
