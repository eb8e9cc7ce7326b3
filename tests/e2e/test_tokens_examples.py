# SPDX-License-Identifier: MIT
"""The example files for issuers: redlockd takes them, and they let in the callers that they are for, and no others."""

import json
import os

import pytest

from harness import ROOT, run_redlockd
from token_fixtures import Issuer, Tokened

FOLDER = ROOT / "docs/how-to/issuers"
KUBERNETES = {"sub": "system:serviceaccount:shop:web", "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": "web", "uid": "u"}}}
GITHUB = {"sub": "repo:acme/app:ref:refs/heads/main", "repository": "acme/app", "repository_owner": "acme", "event_name": "push"}
GITLAB = {"sub": "project_path:acme/app:ref_type:branch:ref:main", "namespace_path": "acme", "project_path": "acme/app", "ref_protected": "true"}
CASES = {
    "kubernetes.json": [(KUBERNETES, "system:serviceaccount:shop:web", ["shop/"]),
                        ({**KUBERNETES, "sub": "system:serviceaccount:ops:admin"}, "system:serviceaccount:ops:admin", [""]),
                        ({**KUBERNETES, "sub": "system:node:a"}, None, None)],
    "github.json": [(GITHUB, "github:acme/app", ["deploy/acme/"]),
                    ({**GITHUB, "sub": "repo:acme/app:pull_request", "event_name": "pull_request"}, "github:acme/app", ["preview/"]),
                    ({**GITHUB, "sub": "repo:acme/app:ref:refs/heads/x"}, None, None),
                    ({**GITHUB, "sub": "repo:evil/app:ref:refs/heads/main", "repository_owner": "evil"}, None, None)],
    "gitlab.json": [(GITLAB, "gitlab:acme/app", ["deploy/acme/"]),
                    ({**GITLAB, "ref_protected": "false", "sub": "project_path:acme/app:ref_type:branch:ref:a/b"}, "gitlab:acme/app", ["preview/"]),
                    ({**GITLAB, "namespace_path": "evil", "sub": "project_path:evil/acme:ref_type:branch:ref:main"}, None, None)],
}


def shown(rule):
    """The line of --check."""
    match = " and ".join(f"{claim} is {pattern}" for claim, pattern in rule["match"].items())
    bounds = "".join(f"; {name}: {rule[name]}" for name in ("max_ttl_ms", "rate", "max_waiting") if name in rule)
    prefixes = ", ".join(prefix or "(all names)" for prefix in rule["prefixes"])
    return f"  {rule['name']}, if {match}; rights: {', '.join(rule['rights'])}; prefixes: {prefixes}{bounds}\n"


def test_each_example_has_a_test():
    assert set(CASES) == set(os.listdir(FOLDER))


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_example(lab, name):
    entry = json.loads((FOLDER / name).read_text())["issuers"][0]
    issuer = Issuer(lab, entry["issuer"])
    path = os.path.join(lab.folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write((FOLDER / name).read_text().replace(entry["jwks_file"], issuer.path))
    done = run_redlockd("--masters", "redis://127.0.0.1:1", "--keys", path, "--check")
    assert done.returncode == 0, done.stderr
    line = f"issuer: {issuer.name} for redlockd, rules: 2, keys in {issuer.path}\n"
    assert line + "".join(map(shown, entry["callers"])) in done.stdout
    world = Tokened(lab, [{**entry, "jwks_file": issuer.path}])
    for claims, caller, prefixes in CASES[name]:
        answer = world.by(issuer.token(**claims), "GET", "/whoami")
        if caller is None:
            assert answer.status == 403
        else:
            assert (answer.status, answer.json["caller"], answer.json["prefixes"]) == (200, caller, prefixes)
