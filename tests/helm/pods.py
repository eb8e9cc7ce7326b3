# SPDX-License-Identifier: MIT
"""Pods of rendered objects, run here: with the built redlockd and redlockctl, and real curl.

`Pod` stands for a kubelet: it lays the Secrets, ConfigMaps and tokens of the release where the pod mounts them (below a
temporary folder that takes the place of /), expands $(VARIABLES), and starts what a container says. Nothing else of a
command line is changed but the paths, the addresses and the ports.
"""

import os
import pathlib
import re
import subprocess
import tempfile

from charts import one_of, pod_of
from harness import BINARY, DIES_WITH_US, SLOW, clean_environment, curl, end_process, wait_until

CTL = os.environ.get("REDLOCKCTL", os.path.join(os.path.dirname(BINARY), "redlockctl"))


class Pod:
    """The pod of a rendered object. `instead`: texts of its command lines and values, and what to put in their place. `secrets`, `configs`: those that the
    release does not make, {name: {member: text}}; `tokens`: of its service account, {audience: text}."""

    def __init__(self, lab, objects, kind, instead, secrets=None, name=None, configs=None, tokens=None):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="pod", dir=lab.folder))
        self.lab, self.pod = lab, pod_of(one_of(objects, kind, name))
        self.secrets = {**{one["metadata"]["name"]: one["stringData"] for one in objects if one["kind"] == "Secret"}, **(secrets or {})}
        self.configs = {**{one["metadata"]["name"]: one.get("data") for one in objects if one["kind"] == "ConfigMap"}, **(configs or {})}
        self.tokens = tokens or {}
        self.instead = {**instead, "/usr/bin/redlockctl": CTL}
        mounts = [mount for container in self.pod.get("initContainers", []) + self.pod["containers"] for mount in container.get("volumeMounts", [])]
        self.instead.update({mount["mountPath"]: str(self.root) + mount["mountPath"] for mount in mounts})
        for mount in mounts:
            self.fill(mount)

    def fill(self, mount):
        """Lays the files there whose names are not taken yet."""
        folder = str(self.root) + mount["mountPath"]
        os.makedirs(folder, exist_ok=True)
        volume = next((one for one in self.pod.get("volumes", []) if one["name"] == mount["name"]), {})
        for name, text in self.files(volume).items():
            path = pathlib.Path(folder, name)
            if not path.exists():
                path.write_text(self.here(text))
                path.chmod(volume["secret"]["defaultMode"] if "secret" in volume else 0o644)

    def files(self, volume):
        """{name: text} of a volume, or of a source of a projected one."""
        if "projected" in volume:
            return {name: text for source in volume["projected"]["sources"] for name, text in self.files(source).items()}
        if "serviceAccountToken" in volume:
            return {volume["serviceAccountToken"]["path"]: self.tokens[volume["serviceAccountToken"].get("audience")]}
        if "secret" in volume:
            return self.secrets[volume["secret"]["secretName"]]
        if "configMap" not in volume:
            return {}
        data = self.configs[volume["configMap"]["name"]]
        items = volume["configMap"].get("items", [{"key": name, "path": name} for name in data])
        return {item["path"]: data[item["key"]] for item in items}

    def replace(self, path, text):
        """Another text in a file of a volume, as a kubelet does it after a change: there is always a whole file."""
        path = pathlib.Path(str(self.root) + path)
        new = path.with_name(path.name + ".new")
        new.write_text(text)
        new.chmod(path.stat().st_mode & 0o777)
        new.rename(path)

    def here(self, text):
        """With this machine's paths and addresses; longer ones first, as a path may begin with another."""
        for old in sorted(self.instead, key=len, reverse=True):
            text = text.replace(old, self.instead[old])
        return text

    def container(self, name):
        return next(one for one in self.pod.get("initContainers", []) + self.pod["containers"] if one["name"] == name)

    def environment(self, container):
        made = {}
        for one in container.get("env", []):
            if "valueFrom" in one:
                ref = one["valueFrom"]["secretKeyRef"]
                made[one["name"]] = self.here(self.secrets[ref["name"]][ref["key"]])
            else:
                made[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: made[match[1]], self.here(one["value"]))
        return clean_environment({"TMPDIR": self.lab.folder, **made})

    def start(self, name, **env):
        """Starts a container; ends with the lab. Its standard error is in .stderr."""
        container = self.container(name)
        command = [self.here(word) for word in [*container.get("command", [BINARY]), *container.get("args", [])]]
        path = self.root / f"{name}.log"
        with open(path, "wb") as log:
            process = subprocess.Popen([*DIES_WITH_US, *command], env={**self.environment(container), **env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        process.log = path
        self.lab.keep(Ending(process))
        return process

    def probe(self, name, which):
        """Runs the command of a probe and returns its exit status."""
        container = self.container(name)
        command = [self.here(word) for word in container[which]["exec"]["command"]]
        return subprocess.run(command, env=self.environment(container), stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=20 * SLOW).returncode


class Ending:
    """For Lab.keep()."""

    def __init__(self, process):
        self.kill = lambda: end_process(process)


def listens(process):
    """The address that a redlockd says in its log."""
    def address():
        assert process.poll() is None, process.log.read_text()
        return re.findall(r"event=listening address=(\S+)", process.log.read_text())
    return wait_until(address, 20, "redlockd listens")[0]


def ends(process):
    return process.wait(timeout=30 * SLOW), process.log.read_text()


def ready(address, *options):
    wait_until(lambda: curl(address, "GET", "/readyz", *options).status == 200, 20, "ready")
