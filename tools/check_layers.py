#!/usr/bin/env python3
"""Keeps the rooms of the source tree in order: check_layers.py [ROOT]

A room is a folder of src/ (backend/cpu, backend/opencl and backend/ref are rooms of their own), and cli/ and python/. A room
includes only rooms of earlier rows of ORDER; rooms of one row never include each other. Tests may include anything.
Prints one line per wrong include (file:line: rule) and exits with 1; exits with 0 when the tree is clean.
"""
import re
import sys
from pathlib import Path

# Left to right in the design, top to bottom here. "backend/*" stands for every folder of src/backend.
ORDER = [
    ["base"],
    ["ir"],
    ["ops"],
    ["device"],
    ["model", "grad", "pass", "plan", "backend/*"],
    ["step"],
    ["io", "data", "prof", "estimate", "tune"],
    ["train"],
    ["api"],
    ["cli", "python"],
]
# The public headers of include/situ speak of nothing but themselves; only these rooms may include them.
PUBLIC, PUBLIC_USERS = "situ", {"api", "cli", "python"}

LEVEL = {room: level for level, row in enumerate(ORDER) for room in row}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".inc", ".cl", ".clh"}


def level_of(room):
    return LEVEL.get("backend/*" if room.startswith("backend/") else room)


def room_of(parts):
    """The room of a path given as parts below src/, or None for a file that lies in no room."""
    if len(parts) < 2:
        return None
    if parts[0] == "backend":
        return "/".join(parts[:2]) if len(parts) > 2 else None
    return parts[0]


def includes(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def source_files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in SUFFIXES)


def target_room(path, room, name):
    """The room an included name belongs to: the including file's own folder goes first, as for the compiler."""
    if (path.parent / name).is_file():
        return room
    parts = Path(name).parts
    if ".." in parts:
        return None
    return room_of(parts)


def broken_rule(room, target):
    """The sentence that says why `room` may not include `target`, or None if it may."""
    if target == room:
        return None
    if target == PUBLIC:
        return None if room in PUBLIC_USERS else f"{room} includes a public header; only {', '.join(sorted(PUBLIC_USERS))} may"
    if room == PUBLIC:
        return f"a public header includes {target}; public headers include only each other"
    mine, theirs = level_of(room), level_of(target)
    if theirs is None:
        return f"unknown room '{target}'; the rooms are listed in tools/check_layers.py"
    if theirs == mine:
        return f"{room} includes {target}, but rooms of one row never include each other"
    if theirs > mine:
        return f"{room} includes {target}, which stands to its right ({order_text()})"
    return None


def order_text():
    return " < ".join(row[0] if len(row) == 1 else "{" + ", ".join(row) + "}" for row in ORDER)


def find_cycle(edges):
    """A list of rooms [a, b, .., a] that include each other in a circle, or None."""
    done, stack = set(), []

    def visit(room):
        if room in stack:
            return stack[stack.index(room):] + [room]
        if room in done:
            return None
        stack.append(room)
        for target in sorted(edges.get(room, {})):
            cycle = visit(target)
            if cycle:
                return cycle
        stack.pop()
        done.add(room)
        return None

    for room in sorted(edges):
        cycle = visit(room)
        if cycle:
            return cycle
    return None


def files_with_rooms(root):
    """(path, room) of every file to check; the room is None where a file lies in none."""
    for path in source_files(root / "src"):
        yield path, room_of(path.relative_to(root / "src").parts)
    for folder in ("cli", "python"):
        for path in source_files(root / folder):
            yield path, folder
    for path in source_files(root / "include"):
        yield path, room_of(path.relative_to(root / "include").parts)


def check(root):
    """All complaints as lines, the number of files seen, and the number of includes followed."""
    complaints, edges, files, followed = [], {}, 0, 0
    for path, room in files_with_rooms(root):
        files += 1
        shown = path.relative_to(root)
        if room is None or (room != PUBLIC and level_of(room) is None):
            complaints.append(f"{shown}:1: this folder is an unknown room; the rooms are listed in tools/check_layers.py")
            continue
        for line, name in includes(path):
            followed += 1
            target = target_room(path, room, name)
            if target is None:
                complaints.append(f"{shown}:{line}: \"{name}\" is no path below src/; write \"room/file.h\"")
                continue
            rule = broken_rule(room, target)
            if rule:
                complaints.append(f"{shown}:{line}: {rule}")
            if target != room:
                edges.setdefault(room, {}).setdefault(target, f"{shown}:{line}")
    cycle = find_cycle(edges)
    if cycle:
        steps = ", ".join(f"{a} -> {b} ({edges[a][b]})" for a, b in zip(cycle, cycle[1:]))
        complaints.append(f"cycle of rooms: {steps}")
    return complaints, files, followed


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    complaints, files, followed = check(root)
    for line in complaints:
        print(line)
    print(f"layers: {files} files, {followed} includes, {len(complaints)} wrong")
    return 1 if complaints or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
