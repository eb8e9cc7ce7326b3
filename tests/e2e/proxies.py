# SPDX-License-Identifier: MIT
"""Real HAProxy, nginx and Apache in front of a redlockd, with the configurations that docs/how-to/operate.md gives."""

import os
import pathlib
import re
import subprocess
import tempfile

from harness import DIES_WITH_US, ROOT, Client, connect_to, curl, end_process, free_port, wait_until


def documented(language):
    """The block of docs/how-to/operate.md in this language."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs/how-to/operate.md").read_text(), re.M | re.S)
    assert len(blocks) == 1, f"{len(blocks)} blocks of {language}"
    return blocks[0]


class ReverseProxy:
    """A proxy on a port of its own, before a redlockd on TCP. `edit`: {text: replacement} in what the document says."""

    def __init__(self, lab, service, edit=None):
        self.folder = tempfile.mkdtemp(prefix="f", dir=lab.folder)
        self.masters = service.masters
        text = documented(self.language)
        for before, after in {"10.0.0.1:8080": service.address, **(edit or {})}.items():
            assert before in text, f"no {before!r} in the document"
            text = text.replace(before, after)
        text = "".join(line for line in text.splitlines(keepends=True) if "10.0.0.2" not in line)  # the second redlockd of the example
        for _ in range(20):
            self.address = f"127.0.0.1:{free_port()}"  # otherwise a server of another test could answer
            self._start(self.complete(text.replace(self.listens, self.listens.replace(":8080", self.address).replace(" 8080", f" {self.address}"))))
            if wait_until(self._answers_or_ended, 20, f"{self.language} answers") == "answers":
                lab.keep(self)
                return
        raise AssertionError(self.log())

    def _start(self, text):
        path = pathlib.Path(self.folder, "configuration")
        path.write_text(text)
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen([*DIES_WITH_US, *self.command(str(path))], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers_or_ended(self):
        if self.process.poll() is not None:
            return "ended"
        try:
            connect_to(self.address).close()
        except ConnectionRefusedError:
            return None
        return "answers"

    def log(self):
        return pathlib.Path(self.folder, "log").read_text(errors="replace")

    def curl(self, method, path, *extra, **how):
        return curl(self.address, method, path, *extra, **how)

    def connect(self, timeout=20.0):
        return connect_to(self.address, timeout)

    def client(self):
        return Client(self.address)

    def kill(self):
        end_process(self.process)
        print(f"--- {self.language}\n{self.log()[-3000:]}")


class Haproxy(ReverseProxy):
    language, listens = "haproxy", "bind :8080"

    def complete(self, text):
        return text

    def command(self, path):
        return ["/usr/sbin/haproxy", "-db", "-f", path]


class Nginx(ReverseProxy):
    language, listens = "nginx", "listen 8080"

    def complete(self, text):
        paths = "".join(f"{name}_temp_path {self.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        return f"daemon off; master_process off; pid {self.folder}/pid; error_log stderr; events {{}} http {{ access_log off; {paths}\n{text}\n}}\n"

    def command(self, path):
        return ["/usr/sbin/nginx", "-e", "stderr", "-p", self.folder, "-c", path]


class Apache(ReverseProxy):
    language, listens = "apache", "Listen 8080"

    def complete(self, text):
        modules = "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in ("mpm_event", "authz_core", "proxy", "proxy_http"))
        text = text.replace("*:8080", self.address)
        return f"{modules}ServerName localhost\nPidFile {self.folder}/pid\nErrorLog {self.folder}/log\nDocumentRoot {self.folder}\n{text}"

    def command(self, path):
        return ["/usr/sbin/apache2", "-X", "-f", path]


PROXIES = {"haproxy": Haproxy, "nginx": Nginx}  # those that notice at once that a client has left
