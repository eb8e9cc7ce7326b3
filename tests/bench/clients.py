#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The client libraries beside a bare kept connection of the same language, and leases that one client renews.

    ./dev build && python3 tests/bench/clients.py [--languages "python go"] [--rounds 7] [--times 200]
    python3 tests/bench/clients.py --renewals 5000 [--seconds 60]

The drivers of tests/clients carry the requests out, against a redlockd over three masters, plain and with TLS.
Library and bare connection take turns; a figure is the median of the rounds.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "clients"), str(TESTS / "e2e")]
LANGUAGES = "python python-aio go node java"
os.environ.setdefault("REDLOCKD_TEST_LANGUAGES", LANGUAGES)

import harness  # noqa: E402
from certificates import Authority  # noqa: E402
from driver import Driver, Refused  # noqa: E402
from relay import Relay  # noqa: E402

WARM_UP, AT_ONCE = 50, 100


class Service:
    """A redlockd over three masters. `ca`: the file of the authority, with TLS."""

    def __init__(self, lab, tls):
        self.ca, options, how = None, [], {}
        if tls:
            authority = Authority(lab.folder)
            issued = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
            self.ca, options = authority.certificate, ["--tls-cert", issued.certificate, "--tls-key", issued.key]
            how = {"trust": self.ca, "listen": ["https://127.0.0.1:0"]}
        self.daemon = lab.service(3, *options, log_requests=None, **how)
        address = self.daemon.address
        self.url = address if "://" in address else f"{'https' if tls else 'http'}://{address}"

    def client(self, driver, url=None):
        driver.client(url or self.url, **({"ca": self.ca} if self.ca else {}))
        return driver


def milliseconds(driver, service, do, times):
    server = {"server": service.url, **({"ca": service.ca} if service.ca else {})} if do == "bare" else {}
    return driver.ask(do, resource=f"bench/{do}", times=times, **server)["milliseconds"]


def compare(lab, languages, rounds, times):
    print("| language | | library, ms | bare, ms | ratio |\n|---|---|---|---|---|")
    for tls in (False, True):
        service = Service(lab, tls)
        for language in languages:
            driver, took = Driver(language), {"pairs": [], "bare": []}
            try:
                service.client(driver)
                for do in took:
                    milliseconds(driver, service, do, WARM_UP)
                for turn in range(rounds):
                    for do in sorted(took, reverse=turn % 2 == 0):
                        took[do].append(milliseconds(driver, service, do, times))
            finally:
                driver.kill()
            library, bare = (statistics.median(took[do]) for do in ("pairs", "bare"))
            print(
                f"| {language} | {'TLS' if tls else 'plain'} | {library:.2f} | {bare:.2f} | {library / bare:.2f} |",
                flush=True,
            )


def renew(lab, languages, leases, seconds):
    """Counts the connections that the client opens, each with a handshake, and the leases that are lost."""
    service = Service(lab, True)
    print("| language | leases | connections at first | afterwards | processor, s | lost |\n|---|---|---|---|---|---|")
    for language in languages:
        relay, driver = Relay(service.daemon), Driver(language)
        try:
            service.client(driver, relay.url.replace("http:", "https:"))
            for first in range(0, leases, AT_ONCE):
                asked = [driver.start("acquire", lease=f"l{n}", resource=f"{language}/{n}", ttl=30, wait=30)
                         for n in range(first, min(first + AT_ONCE, leases))]
                for answers in asked:
                    answers.get(seconds=60)
            opened, used, end = len(relay.sockets) // 2, processor_seconds(driver), time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.2)
            later, used = len(relay.sockets) // 2 - opened, processor_seconds(driver) - used
            lost = sum(is_lost(driver, f"l{n}") for n in range(leases))
            print(f"| {language} | {leases} | {opened} | {later} | {used:.1f} | {lost} |", flush=True)
        finally:
            driver.kill()
            relay.kill()


def processor_seconds(driver):
    fields = pathlib.Path(f"/proc/{driver.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_lost(driver, lease):
    try:
        driver.ask("check", lease=lease)
    except Refused:
        return True
    return False


def main():
    parser = argparse.ArgumentParser(description="Measures the client libraries.")
    parser.add_argument("--languages", default=LANGUAGES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=200, help="pairs in a round")
    parser.add_argument(
        "--renewals", type=int, metavar="LEASES", help="so many leases of one client, instead of the pairs"
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long the leases are renewed")
    options = parser.parse_args()
    with harness.Lab() as lab:
        if options.renewals:
            renew(lab, options.languages.split(), options.renewals, options.seconds)
        else:
            compare(lab, options.languages.split(), options.rounds, options.times)


if __name__ == "__main__":
    main()
