"""What an operator should know of a store's file: where it is, how large, and whether the disk lasts."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from postroom.engines.sqlite.checkpointer import EMERGENCY
from postroom.engines.sqlite.file import File, network_type
from postroom.engines.sqlite.reader import Reader
from postroom.engines.sqlite.wal import read_wal
from postroom.findings import Finding, bad, fine, worth_a_change

#: Free disk below this part of it, or below so many bytes, is worth a change; below the second it is bad.
_SCARCE, _LITTLE, _NONE = 0.05, 2**30, 64 * 2**20


def inspect(file: File, reader: Reader) -> list[Finding]:
    with reader.look() as connection:
        (sync,) = connection.execute("PRAGMA synchronous").fetchone()
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return [
        fine("version", f"SQLite {sqlite3.sqlite_version}, store format {version}"),
        _file(file),
        _journal(mode, sync),
        _wal(file),
        _place(file),
        _disk(file),
    ]


def _file(file: File) -> Finding:
    found = Path(file.path).stat()
    text = f"{file.path}, {found.st_size / 2**20:,.1f} MB"
    if shut := [path for path in (file.path, file.wal_path, file.shm_path) if _shut(path)]:
        advice = "check its owner, its permissions and the mount, or do this as the user of the workers"
        return bad("file", f"{text}; this user may not write to {' and '.join(shut)}", advice)
    if found.st_mode & 0o007:
        return worth_a_change("file", f"{text}, open to every user of this machine", "chmod o= the file")
    return fine("file", text)


def _shut(path: str) -> bool:
    """Whether it is there and this process may not write to it. Asked, not tried: opening it drops locks."""
    place = Path(path)
    return place.exists() and not os.access(place, os.W_OK, effective_ids=True)


def _journal(mode: str, sync: int) -> Finding:
    text = f"journal {mode}, synchronous {('off', 'normal', 'full', 'extra')[sync]}"
    if mode != "wal":
        return bad("durability", text, "somebody changed the journal mode: open the room again")
    return fine("durability", text)


def _wal(file: File) -> Finding:
    size = read_wal(file.wal_path).size
    text = f"{size / 2**20:,.1f} MB"
    if size > EMERGENCY:
        advice = "a process that reads for long, or is stopped, keeps the log from being copied back: end it"
        return worth_a_change("write-ahead log", text, advice)
    return fine("write-ahead log", text)


def _place(file: File) -> Finding:
    kind = network_type(file.path, file.mounts())
    if kind:
        return bad("filesystem", f"a network filesystem ({kind})", "move the file to a local disk")
    return fine("filesystem", "local")


def _disk(file: File) -> Finding:
    disk = shutil.disk_usage(Path(file.path).parent)
    text = f"{disk.free / 2**30:,.1f} GB free of {disk.total / 2**30:,.1f} GB"
    if disk.free < _NONE:
        return bad("disk", text, "make space: nothing can be put on a full disk")
    if disk.free < min(_LITTLE, _SCARCE * disk.total):
        return worth_a_change("disk", text, "make space before it is full")
    return fine("disk", text)
