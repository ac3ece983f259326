"""Run the benchmarks one after the other, each in a process of its own.

    python benchmarks/run.py                    what there is, with what each one measures
    python benchmarks/run.py ridge extraction   these two; each writes its own table beside it

They compare this suite with its peers inside one run; quote the ratios. Nothing else should be running.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def benchmarks() -> dict[str, tuple[Path, str]]:
    """name -> (file, first line of its docstring), for every file here that is a command."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path.name != Path(__file__).name and '__name__ == "__main__"' in source:
            found[path.stem] = (path, (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0])
    return found


def main(names: list[str]) -> int:
    known = benchmarks()
    if {"-h", "--help"} & set(names):
        names = []
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"error: {unknown[0]}: no such benchmark; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if not names:
        print("usage: make bench ARGS='NAME ...' with the names of")
        for name, (_, text) in known.items():
            print(f"  {name:<18} {text}")
    return max((subprocess.run([sys.executable, known[name][0]]).returncode for name in names), default=0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:  # whoever read the list left (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
