"""``make agents``: the programs of ``examples/agents``, each in its framework, against a gate with one tool server.

The model is the scripted one behind the API that they expect. Exits 1 if one does not print what the gate found, and 2
if a package cannot be had.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from conformance.environments import ROOT, exit_code, modules_of, node, python_of
from conformance.processes import KEY, TIME, configuration, gate
from tests.support.ports import free_port
from tests.support.process import command, program

EXAMPLES = ROOT / "examples" / "agents"
NOT_RUN = ("__init__.py", "stand_in.py")
_BOUND_S = 120.0


def _line(example: Path) -> list[str]:
    """The command of an *example*, in its environment. Raises NotInstalled."""
    if example.suffix == ".py":
        return [str(python_of("agents")), str(example)]
    # Node looks for packages beside the program.
    beside = modules_of("agents-js").parent
    return [str(node()), shutil.copy(str(example), str(beside))]


async def _run(example: Path, env: dict[str, str]) -> bool:
    """Returns whether it prints what only the tool or its card says."""
    async with command(*_line(example), folder=ROOT, env=env) as running:
        code = await running.ended(_BOUND_S)
    found = code == 0 and ("Asia/Tokyo" in running.stdout or "time:get_current_time" in running.stdout)
    print(f"{example.name}: {'ok' if found else 'failed'}")
    if not found:
        print(running.stdout[-1000:], running.stderr[-2000:], sep="\n")
    return found


async def main() -> int:
    examples = sorted(path for path in EXAMPLES.glob("*.*") if path.name not in NOT_RUN)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            gate(configuration(Path(folder), [TIME])) as url,
            program("examples.agents.stand_in", "--port", str(port)) as model,
        ):
            await model.wait_for("running on")
            model_url = f"http://127.0.0.1:{port}/v1"
            env = {"WG_URL": url, "WG_KEY": KEY, "OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "none"}
            env |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "PATH": os.environ["PATH"]}
            done = [await _run(example, env) for example in examples]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(exit_code(main()))
