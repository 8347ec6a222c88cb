#!/usr/bin/env python3
"""Runs the `console` blocks of Markdown files and holds their output against what the pages show.

Usage: console.py [--update] FILE.md ...

A block is fenced by ```console. Its lines "$ command" are run by sh in one scratch directory a page, which looks like the
repository's root; lines "> ..." behind a command continue it. What a command prints, errors included, must be the lines
behind it; a line "..." there stands for any lines, and "..." in a line for any text. MOTET names the command; REPOSITORY
the tree. With --update the pages are rewritten with what commands print, except where "..." stands.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINKED = ("examples", "tests", "docs", "bindings")


def blocks(lines):
    """(first line, end line) of the insides of console blocks."""
    begin = None
    for number, line in enumerate(lines):
        if begin is None and line.strip() == "```console":
            begin = number + 1
        elif begin is not None and line.strip() == "```":
            yield begin, number
            begin = None
    if begin is not None:
        raise SystemExit(f"a console block that begins in line {begin} has no end")


def commands(lines, begin, end):
    """(command, first line of its output, end of its output) of a block."""
    at = begin
    while at < end:
        if not lines[at].startswith("$ "):
            raise SystemExit(f"line {at + 1}: a console block begins with '$ '")
        command = lines[at][2:]
        at += 1
        while at < end and lines[at].startswith("> "):
            command += "\n" + lines[at][2:]
            at += 1
        shown = at
        while at < end and not lines[at].startswith("$ "):
            at += 1
        yield command, shown, at


def matches(shown, printed):
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ ]*\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def run(command, directory, environment):
    done = subprocess.run(
        ["sh", "-c", command], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )
    return [line.rstrip() for line in done.stdout.decode(errors="replace").splitlines()]


def check(path, repository, tools, update):
    lines = path.read_text().splitlines()
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
    wrong, replaced, ran = 0, [], 0
    with tempfile.TemporaryDirectory() as directory:
        for name in LINKED:
            os.symlink(repository / name, Path(directory) / name)
        for begin, end in blocks(lines):
            for command, shown, stop in commands(lines, begin, end):
                printed = run(command, directory, environment)
                ran += 1
                if matches(lines[shown:stop], printed):
                    continue
                if update and not any("..." in line for line in lines[shown:stop]):
                    replaced.append((shown, stop, printed))
                    continue
                wrong += 1
                print(f"{path}:{shown}: $ {command}\nshown:")
                print("\n".join("  " + line for line in lines[shown:stop]))
                print("printed:")
                print("\n".join("  " + line for line in printed))
    for shown, stop, printed in reversed(replaced):
        lines[shown:stop] = printed
    if replaced:
        path.write_text("\n".join(lines) + "\n")
    return wrong, ran


def main():
    arguments = sys.argv[1:]
    update = arguments[:1] == ["--update"]
    repository = Path(os.environ["REPOSITORY"]).resolve()
    total = 0
    with tempfile.TemporaryDirectory() as tools:
        os.symlink(Path(os.environ["MOTET"]).resolve(), Path(tools) / "motet")
        for name in arguments[1:] if update else arguments:
            wrong, ran = check(Path(name), repository, tools, update)
            total += wrong
            if ran:
                print(f"{name}: {ran} commands, {wrong} differ")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
