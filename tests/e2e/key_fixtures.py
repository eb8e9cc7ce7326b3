# SPDX-License-Identifier: MIT
"""Keys for the tests of who may do what: a keys file, and a redlockd that asks for them.

    keyed = Keyed(lab, [key("billing", ["orders/"], ["acquire"])])
    keyed.call("billing", "GET", "/locks/orders/1").status
    keyed.write([...]); keyed.reload()
"""

import base64
import hashlib
import json
import os
import secrets
import signal

from harness import wait_until

RIGHTS = ["acquire", "inspect", "list", "admin"]


def new_secret():
    """As `redlockctl key new` makes one."""
    return "rlk_" + base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")


class Key:
    """A key as its holder has it, and its entry in the file."""

    def __init__(self, name, prefixes, rights, **more):
        self.name, self.secret = name, new_secret()
        self.entry = {"name": name, "sha256": hashlib.sha256(self.secret.encode()).hexdigest(), "prefixes": prefixes, "rights": rights, **more}

    def header(self):
        return {"Authorization": f"Bearer {self.secret}"}


class Keyed:
    """A redlockd over three masters with --keys; `operator` is a key of its own that may everything and is always in the file."""

    def __init__(self, lab, keys, *options, masters=None, entries=(), **how):
        self.operator = Key("operator", [""], RIGHTS)
        self.path = os.path.join(lab.folder, f"keys-{secrets.token_hex(4)}.json")
        self.keys = {}
        self.write(keys, entries)
        self.masters = lab.redises(3) if masters is None else masters
        self.redlockd = lab.redlockd(self.masters, "--keys", self.path, *options, wait=False, **how)

    def wait_ready(self):
        wait_until(lambda: self.call("operator", "GET", "/masters").json["quorum"]["voting"] == len(self.masters), 30, "all masters vote")
        return self

    def write(self, keys, entries=()):
        """Writes the file anew: these keys, and entries as they are."""
        self.keys = {one.name: one for one in [self.operator, *keys]}
        self.write_text(json.dumps({"keys": [*(one.entry for one in self.keys.values()), *entries]}, ensure_ascii=False))

    def write_text(self, text, mode=0o640):
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(self.path + ".new", mode)
        os.rename(self.path + ".new", self.path)

    def reload(self, event="keys-reloaded"):
        """SIGHUP, and waits for what the log says of it."""
        before = len(self.redlockd.log(event))
        self.redlockd.process.send_signal(signal.SIGHUP)
        return wait_until(lambda: self.redlockd.log(event)[before:], 10, event)[0]

    def call(self, name, method, path, *extra, body=None, headers=None):
        """With the key of that name; None: without any."""
        shown = self.keys[name].header() if name is not None else {}
        return self.redlockd.curl(method, path, *extra, body=body, headers={**shown, **(headers or {})})

    def all_secrets(self):
        return [one.secret for one in self.keys.values()]
