# SPDX-License-Identifier: MIT
"""A real headless Chromium, driven by chromedriver, and the status page in one of its tabs.

    with Browser() as chromium, chromium.tab() as page:
        page.open("http://127.0.0.1:1234/")
        page.wait(lambda: page.text("#quorum-title") == "Quorum")
        page.check()

Pictures go to build/results/screenshots (REDLOCKD_SCREENSHOTS: elsewhere). All files of the browser lie in a folder of their own. Chromium is driven over
a pipe, so that it ends when chromedriver does, and the kernel ends that one with whoever started it.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chromium.remote_connection import ChromiumRemoteConnection
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from harness import DIES_WITH_US, ROOT, SLOW, children_of, end_process, process_state, wait_until

SCREENSHOTS = pathlib.Path(os.environ.get("REDLOCKD_SCREENSHOTS", ROOT / "build" / "results" / "screenshots"))
AXE = pathlib.Path(__file__).resolve().parent / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--force-color-profile=srgb", "--lang=en"]


class Browser:
    """chromedriver and one Chromium. tab() is a fresh window in it, without anything that was stored before."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="rl-chromium-")
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_driver(self):
        """chromedriver takes a free port; where another program has taken that for IPv6 meanwhile, it ends, and another one is started. Returns the port."""
        log = pathlib.Path(self.folder, "chromedriver.log")
        started = re.compile(r"started successfully on port (\d+)")
        for _ in range(5):
            with open(log, "wb") as out:
                self.driver_process = subprocess.Popen([*DIES_WITH_US, shutil.which("chromedriver"), "--port=0"], stdin=subprocess.DEVNULL, stdout=out,
                                                       stderr=out, env={**os.environ, "HOME": self.folder, "TMPDIR": self.folder})
            wait_until(lambda: started.search(log.read_text()) or self.driver_process.poll() is not None, 30, "chromedriver")
            if found := started.search(log.read_text()):
                return found.group(1)
        raise AssertionError(f"chromedriver does not start: {log.read_text()}")

    def start(self):
        port = self.start_driver()
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in [*FLAGS, f"--user-data-dir={self.folder}/profile"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Remote(ChromiumRemoteConnection(f"http://127.0.0.1:{port}", "goog", "chrome", ignore_proxy=True), options=options)
        self.driver.set_script_timeout(60 * SLOW)

    def __exit__(self, *_):
        process = getattr(self, "driver_process", None)
        below = children_of(process.pid) if process else []
        with contextlib.suppress(Exception):
            self.driver.quit()
        if process:
            end_process(process)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not any(process_state(pid) for pid in below), 10, "Chromium ends")
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def tab(self):
        before = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        page = Page(self.driver)
        try:
            yield page
        finally:
            self.driver.close()
            self.driver.switch_to.window(before)


class Page:
    """A tab. check() reads its log and its requests."""

    def __init__(self, driver):
        self.driver = driver
        self.handle = driver.current_window_handle
        self.origin = None
        self.refused = set()  # statuses that the test means to see; Chromium writes a line for each into the console
        self.console, self.requests = [], []
        self.collect()
        self.console, self.requests = [], []
        self.look(1280, 900)

    def open(self, address, hash=""):
        """`address`: as Redlockd has it; `hash`: what the page is to show, as its address tells it."""
        self.origin = f"http://{address}"
        self.driver.get(f"{self.origin}/{hash}")

    # ---- looking ----

    def look(self, width, height, dark=False, calm=False):
        """Size of the window, and what the one who looks prefers."""
        self.looks = (width, height, dark, calm)
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                         {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"}])

    def cdp(self, command, **parameters):
        return self.driver.execute("executeCdpCommand", {"cmd": command, "params": parameters})["value"]

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        """All of its text, also what is not to be seen; "" where there is no such element."""
        return self.run("const e = document.querySelector(arguments[0]); return e ? e.textContent.trim() : ''", selector)

    def seen(self, selector):
        """Whether such an element is there and takes room."""
        return self.run("const e = document.querySelector(arguments[0]); return Boolean(e && e.getClientRects().length)", selector)

    def rows(self, body):
        """The rows of a table, each a list of the texts of its cells."""
        return self.rows_of(f"#{body}")

    def rows_of(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0] + ' > tr')].map(r => [...r.children].map(c => c.textContent.trim()))", selector)

    def row(self, body, name):
        """The row whose first cell begins with `name`."""
        return next((row for row in self.rows(body) if row[0].startswith(name)), None)

    def wait(self, condition, seconds=15, what="the page"):
        def settled():
            try:
                return condition()
            except StaleElementReferenceException:
                return None
        try:
            return wait_until(settled, seconds, what)
        except AssertionError:
            print(self.run("return document.body.innerText"))
            raise

    # ---- doing ----

    def press(self, *keys):
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def click(self, selector):
        self.one(selector).click()

    def focused(self):
        """id of what has the focus; its text where it has no id; "" for none."""
        return self.run("const e = document.activeElement; return e === document.body ? '' : e.id || e.textContent.trim()")

    def screenshot(self, name, whole=True):
        """The whole page, however long, or what is in the window."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        if not whole:
            self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
            return
        width, height, *likes = self.looks  # not innerWidth: a phone zooms out where the page is too wide
        tall = self.run("return Math.ceil(document.documentElement.getBoundingClientRect().height)")
        self.look(width, max(tall, height), *likes)
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
        self.look(width, height, *likes)

    # ---- judging ----

    def axe(self):
        """The findings of the accessibility checker, as words. The debugger inserts it, to which no policy of the page
        applies."""
        self.cdp("Runtime.evaluate", expression=AXE.read_text())
        found = self.driver.execute_async_script("""
            const done = arguments[arguments.length - 1];
            axe.run(document, { resultTypes: ["violations"] }).then(result => done(result.violations), error => done([{ id: String(error), nodes: [] }]));
        """)
        return [f"{one['id']}: {one.get('help')}: {node['target']} {node.get('failureSummary')}" for one in found for node in one["nodes"] or [{"target": ""}]]

    def overflow(self):
        """By how many pixels the page is wider than its window, and what sticks out, but for what a cell cuts off."""
        return self.run("""
            const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
            const shown = [...document.querySelectorAll("body *")].filter(e => e.getClientRects().length && !e.closest(".unseen, .skip, svg"));
            const boxes = [...document.querySelectorAll("th, td, .lock-link, #caller")].filter(box => getComputedStyle(box).textOverflow === "ellipsis");
            const cut = e => boxes.some(box => box !== e && box.contains(e));
            const out = shown.filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5 && !cut(e));
            return [wide, out.slice(0, 5).map(e => e.outerHTML.slice(0, 120))];
        """)

    def collect(self):
        self.console += self.driver.get_log("browser")
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])

    def asked(self, path):
        """How often something whose path and query begin so was asked for so far."""
        self.collect()
        return sum(url.removeprefix(self.origin).startswith(path) for url in self.requests)

    def expected(self, line):
        """A refusal that the test is about: the page must show it, and the browser notes it."""
        if "/whoami - Failed to load resource" in line and "status of 404" in line:
            return True  # the service does not tell: the page offers all
        found = re.search(r"Failed to load resource: (?:the server responded with a status of (\d+)|(net::ERR_CONNECTION_REFUSED|net::ERR_INCOMPLETE_CHUNKED_ENCODING))", line)
        return bool(found) and (int(found.group(1)) in self.refused if found.group(1) else 0 in self.refused)

    def check(self):
        self.collect()
        lines = [entry["message"] for entry in self.console if not self.expected(entry["message"])]
        assert not lines, lines
        elsewhere = [url for url in self.requests if not url.startswith((self.origin + "/", "data:,"))]
        assert not elsewhere and self.requests, elsewhere
