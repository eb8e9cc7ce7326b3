# SPDX-License-Identifier: MIT
"""Shared parts of the tests of SIGHUP for the files of the masters."""

import os
import signal

from harness import wait_until
from master_checks import TIMEOUT_MS


class MastersFile:
    """A --masters-file."""

    def __init__(self, lab):
        self.path = os.path.join(lab.folder, "masters")

    def write(self, *addresses, mode=0o600):
        """In place of the old one, as a rotation does."""
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            out.write("".join(address + "\n" for address in addresses))
        os.chmod(self.path + ".new", mode)
        os.rename(self.path + ".new", self.path)


def serve(lab, file, *options, **how):
    service = lab.redlockd([], "--masters-file", file.path, "--bootstrap", "--master-timeout-ms", TIMEOUT_MS, *options, **how)
    service.wait_voting(3)
    return service


def reload(service, event="masters-reloaded"):
    """Sends SIGHUP and returns the line of the log about the masters."""
    before = len(service.log(event))
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(service.log(event)) > before, what=event)
    return service.log(event)[-1]
