#!/usr/bin/env python3
"""Holds the sources against the house's two structural rules.

1. A folder of src/ includes only from itself and from folders that stand before it. The order is the one that
   src/CMakeLists.txt builds in: planning_floors, runtime_floors, cli. libmotet's floors know nothing of the runtime.
2. A C file has at most 600 lines.

Prints what breaks them, one line each, and exits with 1. With arguments it checks that tree instead of its own.
"""

import re
import sys
from pathlib import Path

LINES_MAX = 600


def floors(root: Path) -> list:
    text = (root / "src" / "CMakeLists.txt").read_text()
    order = []
    for name in ("planning_floors", "runtime_floors"):
        found = re.search(rf"set\({name} ([^)]*)\)", text)
        if found is None:
            sys.exit(f"floors: src/CMakeLists.txt does not set {name}")
        order += found.group(1).split()
    return order + ["cli"]


def check_includes(root: Path, order: list) -> list:
    wrong = []
    for path in sorted((root / "src").rglob("*.[ch]")):
        floor = path.relative_to(root / "src").parts[0]
        if floor not in order:
            wrong.append(f"{path.relative_to(root)}: folder {floor} is no floor: {', '.join(order)}")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if found is None:
                continue
            place = f"{path.relative_to(root)}:{number}"
            target = found.group(1).split("/")
            if target[0] == "motet" and len(target) == 2:
                continue  # public headers stand under all floors
            if target[0] == floor:
                continue
            if target[0] not in order or len(target) < 2:
                wrong.append(f"{place}: {found.group(1)} names no floor")
            elif order.index(target[0]) > order.index(floor):
                wrong.append(f"{place}: {floor} includes {found.group(1)}, from a floor above")
    for path in sorted((root / "include").rglob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if found is not None and not found.group(1).startswith("motet/"):
                wrong.append(f"{path.relative_to(root)}:{number}: a public header includes {found.group(1)}")
    return wrong


def check_lengths(root: Path) -> list:
    wrong = []
    for folder in ("src", "include", "bench", "examples", "tests"):
        for path in sorted((root / folder).rglob("*.[ch]")):
            lines = path.read_text().count("\n")
            if lines > LINES_MAX:
                wrong.append(f"{path.relative_to(root)}: {lines} lines; at most {LINES_MAX}, in two files by noun")
    return wrong


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    wrong = check_includes(root, floors(root)) + check_lengths(root)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
