# SPDX-License-Identifier: MIT
"""holder.py KIT PLACE ITEM guarded|plain FOLDER: takes one from the stock, as a job of `redlockctl run`. Between reading and writing it waits for a
word in FOLDER/go, a pipe. FOLDER/read then has its process id, and FOLDER/written what became of it."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import kits  # noqa: E402


def tell(path, text):
    new = path.with_suffix(".new")
    new.write_text(f"{text}\n", "utf-8")
    new.rename(path)


def main(name, place, item, mode, folder):
    folder, fence = pathlib.Path(folder), int(os.environ["REDLOCK_FENCE"])
    kit = getattr(kits, name)(place, item)
    amount = kit.enter(fence) if mode == "guarded" else kit.read()
    os.mkfifo(folder / "go")
    pipe = os.open(folder / "go", os.O_RDWR)
    tell(folder / "read", os.getpid())
    os.read(pipe, 1)
    try:
        if mode == "guarded":
            kit.write(fence, amount - 1)
        else:
            kit.write_plain(amount - 1)
        tell(folder / "written", amount - 1)
    except kits.LockLost:
        tell(folder / "written", "refused")


main(*sys.argv[1:])
