# SPDX-License-Identifier: MIT
"""A file with the token that the client shows, which is replaced while the client runs."""

import pytest

from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import fake  # noqa: F401
from harness import SLOW
from key_fixtures import Key, Keyed
from test_library import url_of

TTL = 6 * SLOW


@pytest.fixture
def token(tmp_path):
    """Replaces the file as Kubernetes does: another one takes its name."""
    path = tmp_path / "token"

    def replace(text):
        other = tmp_path / "other"
        other.write_text(text, encoding="utf-8")
        other.rename(path)
        return str(path)
    return replace


def shown(calls):
    return [call.headers.get("authorization") for call in calls]


def test_a_real_server(lab, driver, token):
    keyed = Keyed(lab, [Key("one", ["orders/"], ["acquire"]), Key("two", ["invoices/"], ["acquire"])]).wait_ready()
    driver.client(url_of(keyed.redlockd), token_file=token(keyed.keys["one"].secret + "\n"))
    lease = driver.acquire("orders/1")
    with pytest.raises(Refused, match="forbidden"):
        driver.acquire("invoices/1")
    token(f" {keyed.keys['two'].secret}\n")
    assert driver.acquire("invoices/1").release()
    with pytest.raises(Refused, match="forbidden"):
        driver.acquire("orders/2")
    token("revoked")
    with pytest.raises(Refused, match="unauthorized"):
        driver.acquire("invoices/1")
    token(keyed.keys["one"].secret)
    assert lease.release()


def test_it_is_read_for_each_request(fake, driver, token):
    """Also for renewals; a file that cannot be read, or has no token, leaves the last one."""
    server = fake()
    path = token("a\n")
    lease = driver.client(server.address, token_file=path).acquire("x", ttl=TTL)
    token("b")
    extend = server.call("extend", 1)
    for text in ("", "no token \u00e9", "two\nlines"):
        token(text)
        driver.ask("force", resource="y")
    token("c")
    assert lease.release()
    assert shown([server.call("acquire"), extend, *server.of("release")]) == [f"Bearer {each}" for each in "abbbbc"]


def test_a_file_that_is_gone(fake, driver, token, tmp_path):
    server = fake()
    driver.client(server.address, token_file=token("a"))
    (tmp_path / "token").unlink()
    assert driver.acquire("x").release() and shown(server.calls) == ["Bearer a"] * 2


MISTAKES = {"no file": (None, {}), "empty": ("", {}), "two": ("a b", {}), "a key as well": ("a", {"key": "k"})}


@pytest.mark.parametrize("text, more", MISTAKES.values(), ids=MISTAKES)
def test_what_makes_no_client(fake, driver, token, tmp_path, text, more):
    path = str(tmp_path / "none") if text is None else token(text)
    with pytest.raises(Refused) as refused:
        driver.client(fake().address, token_file=path, **more)
    assert "a b" not in refused.value.detail
