# SPDX-License-Identifier: MIT
"""Names of locks that HTTP clients rewrite in a path: with a segment `.` or `..`. They are refused at every call, before anything is done."""

import pytest

from harness import quote

TOKEN = "0123456789abcdef0123456789abcdef01234567"
DOTTED = (".", "..", "./a", "../a", "a/.", "a/..", "a/./b", "a/../b", "/..", "../", "a//../b")
GOOD = ("...", "a..", "..a", "a/...", "a/.b", "a./b", "a/..b/c", ".a/b..", "a\\..\\b", "a/%2e%2e/b", ". ", "//")


def check_refused(answer, field):
    assert (answer.status, answer.code) == (400, "invalid-request"), answer
    (error,) = answer.json["errors"]
    assert error["field"] == field and '".."' in error["reason"], answer


def path_of(name):
    """With the dots encoded, too."""
    return "/locks/" + quote(name).replace(".", "%2E")


@pytest.mark.parametrize("name", DOTTED)
def test_a_segment_of_dots_is_refused_at_every_call(service, name):
    for path in (path_of(name), "/locks/" + name):
        for method, query in (("GET", ""), ("HEAD", ""), ("PUT", ""), ("DELETE", ""), ("DELETE", "?force=true")):
            headers = {} if query or method in ("GET", "HEAD") else {"Lock-Token": TOKEN}
            answer = service.curl(method, path + query, headers=headers)
            if method == "HEAD":
                assert answer.status == 400, answer
            else:
                check_refused(answer, "resource")
    for method, members in (("POST", {}), ("PUT", {"token": TOKEN}), ("DELETE", {"token": TOKEN})):
        check_refused(service.curl(method, "/locks", body={"resource": name, **members}), "resource")
        check_refused(service.curl(method, "/locks", body={"resources": ["good", name], **members}), "resources[1]")
    check_refused(service.curl("DELETE", "/locks?force=true", body={"resource": name}), "resource")
    check_refused(service.curl("GET", f"/locks?resource={quote(name)}"), "resource")


@pytest.mark.parametrize("name", GOOD)
def test_other_dots_are_names(service, name):
    lease = service.acquire(name)
    assert service.curl("GET", path_of(name)).json["held"] is True
    assert service.release(lease).status == 204


def test_a_rewritten_path_reaches_no_other_lock(service, resource):
    """curl sends the path of a name with dots as that of another lock: such a name cannot have been acquired."""
    lease = service.acquire(f"{resource}/b")
    check_refused(service.curl("POST", "/locks", body={"resource": f"{resource}/a/../b"}), "resource")
    check_refused(service.curl("DELETE", f"/locks/{resource}/a/../b?force=true"), "resource")
    assert service.curl("GET", f"/locks/{resource}/b").json["fence"] == lease["fence"]
    assert service.release(lease).status == 204


def test_a_prefix_is_no_name(service, resource):
    """It may end within a segment."""
    lease = service.acquire(f"{resource}/..a")
    for end in (".", "..", "..a"):
        listed = service.curl("GET", f"/locks?prefix={quote(resource)}/{end}").json["locks"]
        assert [lock["resource"] for lock in listed] == [lease["resource"]]
    assert service.release(lease).status == 204
    assert service.curl("GET", "/locks?prefix=a/../b").json["locks"] == []


def test_a_listing_leaves_such_names_out(service, resource):
    """Another Redlock library may have them."""
    for server in service.masters:
        server.cli("SET", f"{resource}/../a", TOKEN, "PX", "60000")
    assert service.curl("GET", f"/locks?prefix={quote(resource)}").json["locks"] == []
    for server in service.masters:
        server.cli("DEL", f"{resource}/../a")
