"""What `import postroom` costs on top of a bare Python, in interpreters that have just started."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from bench.measure import Case
from bench.stage import Stage

_SAMPLES = 7
#: The clock starts when the interpreter is up, so that its own start is not counted.
_MILLISECONDS = """
from time import perf_counter
began = perf_counter()
import postroom
print((perf_counter() - began) * 1_000)
"""
_THIRD_PARTY = """
import sys
before = set(sys.modules)
import postroom
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(tops - set(sys.stdlib_module_names) - {"postroom"}))
"""


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "memory":  # no engine is loaded by it: once is enough
        return []
    return [Case("import", (stage.figure("import postroom", "ms"),), _trial, _notes)]


def _trial() -> list[float]:
    with tempfile.TemporaryDirectory() as bytecode:
        _python("import postroom", bytecode)  # compiles: an installed package comes with its bytecode
        return [statistics.median(float(_python(_MILLISECONDS, bytecode)) for _ in range(_SAMPLES))]


def _notes() -> list[str]:
    with tempfile.TemporaryDirectory() as bytecode:
        loaded = ", ".join(_python(_THIRD_PARTY, bytecode).split())
    return [f"import postroom loads, beyond the standard library: {loaded or 'nothing'}"]


def _python(code: str, bytecode: str) -> str:
    """What a fresh interpreter prints that keeps its bytecode in this folder."""
    env = os.environ | {"PYTHONPYCACHEPREFIX": bytecode}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
