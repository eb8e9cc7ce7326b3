# SPDX-License-Identifier: MIT
"""Names of locks behind proxies that refuse or rewrite them in a path: outside the path all of them pass."""

import json

import pytest

from ctl import Run, ctl
from harness import quote, wait_until
from proxies import Apache, Haproxy, Nginx

PATH_IN_PROXY_PASS = {"proxy_pass http://redlockd;": "proxy_pass http://redlockd/;"}
APACHE_DEFAULT = {"    AllowEncodedSlashes NoDecode\n": "", " nocanon": ""}
KINDS = {"haproxy": (Haproxy, {}), "nginx": (Nginx, {}), "nginx, path in proxy_pass": (Nginx, PATH_IN_PROXY_PASS),
         "nginx, merge_slashes off": (Nginx, {**PATH_IN_PROXY_PASS, "    location / {": "    merge_slashes off;\n    location / {"}),
         "apache": (Apache, {}), "apache, default": (Apache, APACHE_DEFAULT)}
NAMES = ("orders/42", "a//b", "100%", "a?b#c", "1+1 =&;2", "back\\slash", "%2F")
# What becomes of a path: the status, or the name that redlockd is asked for.
IN_PATH = {"orders/42": "orders/42", "orders%2F42": "orders/42", "a//b": "a//b", "a%2F%2Fb": "a//b", "100%25": "100%"}
CHANGED = {"nginx, path in proxy_pass": {"a//b": "a/b", "a%2F%2Fb": "a/b"}, "apache, default": {"orders%2F42": 404, "a%2F%2Fb": 404, "a//b": "a/b"}}


@pytest.fixture(params=sorted(KINDS))
def proxied(lab, request):
    service = lab.service(3)
    kind, edit = KINDS[request.param]
    made = kind(lab, service, edit)
    made.name, made.service = request.param, service
    return made


def test_in_the_path(proxied):
    found = {}
    for path in IN_PATH:
        answer = proxied.curl("GET", "/locks/" + path)
        found[path] = answer.json["resource"] if answer.status == 200 else answer.status
    assert found == {**IN_PATH, **CHANGED.get(proxied.name, {})}


@pytest.mark.parametrize("name", NAMES)
def test_outside_the_path(proxied, name):
    lease = proxied.curl("POST", "/locks", body={"resource": name})
    assert lease.status == 201 and lease.json["resource"] == name
    asked = proxied.curl("GET", "/locks?resource=" + quote(name).replace("/", "%2F"))
    assert asked.json["fence"] == lease.json["fence"] and asked.json["resource"] == name
    assert proxied.curl("GET", "/locks?resource=" + quote(name), headers={"If-None-Match": asked.headers["etag"]}).status == 304
    assert proxied.curl("PUT", "/locks", body={"resource": name, "token": lease.json["token"]}).status == 200
    assert proxied.curl("DELETE", "/locks", body={"resource": name}, headers={"Lock-Token": lease.json["token"]}).status == 204
    assert proxied.curl("POST", "/locks", body={"resource": name}).status == 201
    assert proxied.curl("DELETE", "/locks?force=true", body={"resource": name}).status == 204
    assert not proxied.service.curl("GET", "/locks?resource=" + quote(name)).json["held"]


def test_redlockctl(proxied, lab):
    """It keeps a lock, sees it and gives it back; the name is one that each proxy leaves alone only outside the path."""
    name = "orders//4%2F2"
    run = Run(lab, name, command="exec tail -f /dev/null", servers=[proxied.address])
    extended = 'redlockd_lease_requests_total{op="extend",outcome="ok"}'
    wait_until(lambda: proxied.service.metrics().get(extended, 0) >= 1, what="an extension")
    assert ctl("status", name, server=proxied.address).stdout.startswith(f"{name}: held")
    run.process.terminate()
    run.wait()
    assert ctl("status", name, server=proxied.address).stdout == f"{name}: free\n"
    token = json.loads(ctl("acquire", name, "--json", server=proxied.address).stdout)["token"]
    assert ctl("release", name, server=proxied.address, env={"REDLOCK_TOKEN": token}).returncode == 0
    assert ctl("acquire", name, server=proxied.address).returncode == 0
    assert ctl("release", "--force", name, server=proxied.address).returncode == 0
