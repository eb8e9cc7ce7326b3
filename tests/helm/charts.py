# SPDX-License-Identifier: MIT
"""The charts and the tools that look at them. Nothing is written into the repository: charts with dependencies are copied first.

A chart is rendered by `template(chart, values…)`, which returns a list of objects as dictionaries; a render that fails raises Refused with helm's words.
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHARTS = ROOT / "helm"
TOOLS = pathlib.Path(os.environ.get("REDLOCKD_TOOLS", str(ROOT / "build" / "tools")))
OLDEST, NEWEST = "1.29.0", "1.37.0"
SCHEMAS = ("{{ .NormalizedKubernetesVersion }}/{{ .ResourceKind }}{{ .KindSuffix }}.json",
           "crd/{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json")


class Refused(Exception):
    """The message of helm for values that it refuses."""


def run(*command, stdin=None, env=None):
    return subprocess.run([str(part) for part in command], input=stdin, capture_output=True, text=True, check=False, env=env)


@functools.cache
def helm_environment():
    """helm looks for settings and repositories of the user's, and is to find none."""
    home = tempfile.mkdtemp(prefix="helm-home-")
    import atexit
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return {"PATH": os.environ["PATH"], "HOME": home}


def helm(*args, stdin=None):
    done = run(TOOLS / "helm", *args, stdin=stdin, env=helm_environment())
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


@functools.cache
def chart(name):
    """The folder of a chart; of one with dependencies a copy that has them."""
    if name != "example":
        return CHARTS / name
    copy = pathlib.Path(helm_environment()["HOME"])
    for one in ("example", "redlockd-sidecar"):
        shutil.copytree(CHARTS / one, copy / one, ignore=shutil.ignore_patterns("charts"))
    helm("dependency", "build", copy / "example")
    return copy / "example"


def render(name, values=None, *args, version=NEWEST, release="locks"):
    """The manifests that helm renders from the values (a dictionary), as text."""
    return helm("template", release, chart(name), "--namespace", "shop", "--kube-version", version, "--values", "-", *args, stdin=json.dumps(values or {}))


def parse(text):
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def template(name, values=None, *args, **how):
    return parse(render(name, values, *args, **how))


def one_of(objects, kind, name=None):
    """The one object of its kind, or None."""
    found = [one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    assert len(found) <= 1, [one["metadata"]["name"] for one in found]
    return found[0] if found else None


def pod_template(one):
    """The template of the pods that an object makes, with their labels; None: it makes none."""
    if one["kind"] == "Pod":
        return one
    made = one["spec"]["jobTemplate"] if one["kind"] == "CronJob" else one
    return made["spec"]["template"] if one["kind"] in ("Deployment", "StatefulSet", "Job", "CronJob") else None


def pod_of(one):
    made = pod_template(one)
    return made and made["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def kubeconform(version, *files):
    """The verdicts on every object in the files: a list of {filename, kind, name, status, msg}."""
    locations = [part for schema in SCHEMAS for part in ("-schema-location", TOOLS / "schemas" / schema)]
    done = run(TOOLS / "kubeconform", "-strict", "-output", "json", "-verbose", "-kubernetes-version", version, *locations, *files)
    return json.loads(done.stdout)["resources"]


def podsecurity(text):
    """(whether all is well, the lines of tests/helm/podsecurity)."""
    done = run(TOOLS / "podsecurity", stdin=text)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0, done.stdout.splitlines()
