# SPDX-License-Identifier: MIT
"""A real Prometheus in a folder of its own, and what it answers."""

import json
import os
import random
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

from harness import DIES_WITH_US, SLOW, end_process, wait_until

NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Prometheus:
    """Started with this configuration (a dictionary); ended by kill()."""

    def __init__(self, folder, configuration):
        self.folder = os.path.join(folder, "prometheus")
        os.mkdir(self.folder)
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as out:
            yaml.safe_dump(configuration, out)
        for port in random.sample(range(15000, 32000), 10):
            self.address = f"127.0.0.1:{port}"
            with open(os.path.join(self.folder, "log"), "ab") as log:
                self.process = subprocess.Popen([*DIES_WITH_US, "prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder}/data",
                                                 f"--web.listen-address={self.address}", "--log.level=warn"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if wait_until(self._ready_or_ended, 30, "Prometheus") == "ready":
                return
        raise AssertionError("Prometheus does not start: " + self.log())

    def _ready_or_ended(self):
        if self.process.poll() is not None:
            return "ended"
        try:
            return "ready" if NO_PROXY.open(f"http://{self.address}/-/ready", timeout=5).status == 200 else None
        except OSError:
            return None

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as log:
            return log.read()

    def get(self, path, **parameters):
        """`data` of an answer of the API; its error where there is one."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with NO_PROXY.open(url, timeout=30 * SLOW) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def now(self, query, at=None):
        """The series of an instant query: [(labels, value as text)]."""
        found = self.get("query", query=query, time=at or time.time())
        return [({}, found["result"][1])] if found["resultType"] == "scalar" else [(one["metric"], one["value"][1]) for one in found["result"]]

    def range(self, query, start, end, step):
        """The series of a range query: [(labels, [values as text])]."""
        found = self.get("query_range", query=query, start=start, end=end, step=step)["result"]
        return [(one["metric"], [value for _, value in one["values"]]) for one in found]

    def alerts(self):
        """{name: states} of those that are pending or firing."""
        found = {}
        for alert in self.get("alerts")["alerts"]:
            found.setdefault(alert["labels"]["alertname"], set()).add(alert["state"])
        return found

    def kill(self):
        end_process(self.process)
