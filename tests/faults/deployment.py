# SPDX-License-Identifier: MIT
"""The deployment around redlockd: replicas with different options, chosen by the seed. Each listens on a Unix socket, TCP and TLS, and has
nginx and HAProxy (Debian's nginx-light and haproxy) in front. Loopback only; all files lie in the folder of the run.
"""

import os
import random
import shutil
import socket
import subprocess

import certificates
import harness

NARROW_MAX_TTL_MS = 600
REPLICAS = 3
PROXIED = {"nginx": None, "haproxy": "always", "haproxy-never": "never"}  # a way: HAProxy's http-reuse


def free_ports(count):
    """Ports below those that the kernel assigns, so that they stay free while a replica is down."""
    found = []
    for port in random.sample(range(15000, 32000), 2000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


class Shape:
    """The options of each replica. One has a smaller --max-ttl-ms than the others; at least two close idle connections after a second or less."""

    def __init__(self, seed, max_ttl_ms):
        drawn = random.Random(f"deployment {seed}")
        idle = drawn.sample((300, 1000, drawn.choice((1000, 60000))), REPLICAS)
        requests = drawn.sample((drawn.choice((3, 10)), 100, 1000000), REPLICAS)
        narrow = drawn.randrange(REPLICAS)
        self.max_ttl_ms = [NARROW_MAX_TTL_MS if number == narrow else max_ttl_ms for number in range(REPLICAS)]
        workers = drawn.sample((1, 2, drawn.choice((1, 2, 3))), REPLICAS)
        drains = [drawn.choice((1500, 3000, 10000)) for _ in range(REPLICAS)]
        self.narrow = narrow
        self.options = [{"max-ttl-ms": self.max_ttl_ms[number], "idle-timeout-ms": idle[number], "max-requests-per-connection": requests[number],
                         "workers": workers[number], "drain-ms": drains[number]} for number in range(REPLICAS)]

    def tell(self):
        return "; ".join(", ".join(f"{name} {value}" for name, value in options.items()) for options in self.options)


class Ways:
    """Where each replica listens, and the ways to it."""

    NAMES = ("unix", "tcp", "tls", *PROXIED)

    def __init__(self, folder):
        self.folder = folder
        ports = free_ports(2 * REPLICAS)
        authority = certificates.Authority(folder)
        self.ca = authority.certificate
        self.certificate = authority.issue("replica", "IP:127.0.0.1", "DNS:localhost")
        self.addresses = {
            "unix": [f"unix:{os.path.join(folder, f'd{number}')}" for number in range(REPLICAS)],
            "tcp": [f"127.0.0.1:{port}" for port in ports[:REPLICAS]],
            "tls": [f"127.0.0.1:{port}" for port in ports[REPLICAS:]],
            **{name: [f"unix:{os.path.join(folder, f'{name}{number}')}" for number in range(REPLICAS)] for name in PROXIED}}
        self.ways = [{"name": name, "addresses": addresses, "ca": self.ca if name == "tls" else None}
                     for name, addresses in self.addresses.items()]

    def options(self, number):
        listens = [word for way in ("unix", "tcp", "tls") for word in ("--listen", self.url(way, number))]
        return [*listens, "--tls-cert", self.certificate.certificate, "--tls-key", self.certificate.key]

    def url(self, way, number):
        """For redlockd and redlockctl."""
        return {"tcp": "http://", "tls": "https://"}.get(way, "") + self.addresses[way][number]

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 2000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx.body;
  proxy_temp_path {folder}/nginx.proxy;
  fastcgi_temp_path {folder}/nginx.fastcgi;
  uwsgi_temp_path {folder}/nginx.uwsgi;
  scgi_temp_path {folder}/nginx.scgi;
{servers}}}
"""
NGINX_SERVER = """  upstream replica{number} {{ server {tcp} max_fails=0; keepalive 8; }}
  server {{
    listen {front};
    location / {{
      proxy_pass http://replica{number};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host localhost;
      proxy_buffering off;
    }}
  }}
"""
HAPROXY = """
global
  maxconn 2000
defaults
  mode http
  retries 0
  timeout connect 1s
  timeout client 30s
  timeout server 30s
  option abortonclose
"""
HAPROXY_REPLICA = """
listen {way}{number}
  bind {front}
  http-reuse {reuse}
  server replica{number} {tcp}
"""


def program(name):
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert found, f"{name} is missing: ./dev installs it"
    return found


class Proxy:
    """nginx or HAProxy, in front of all replicas."""

    def __init__(self, name, command, folder):
        self.name, self.log = name, os.path.join(folder, f"{name}.output")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*harness.DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def start_proxies(ways):
    """nginx and HAProxy, as soon as they listen. The replicas need not be there yet."""
    each = [{"number": number, "tcp": ways.addresses["tcp"][number]} for number in range(REPLICAS)]
    servers = "".join(NGINX_SERVER.format(front=ways.addresses["nginx"][one["number"]], **one) for one in each)
    nginx = ways.write("nginx.conf", NGINX.format(folder=ways.folder, servers=servers))
    backends = [HAPROXY_REPLICA.format(way=way, reuse=reuse, front=ways.addresses[way][one["number"]].replace("unix:", "unix@"), **one)
                for way, reuse in PROXIED.items() if reuse for one in each]
    haproxy = ways.write("haproxy.conf", HAPROXY + "".join(backends))
    started = [Proxy("nginx", [program("nginx"), "-e", os.path.join(ways.folder, "nginx.log"), "-c", nginx], ways.folder),
               Proxy("haproxy", [program("haproxy"), "-db", "-q", "-f", haproxy], ways.folder)]
    fronts = [address for name in PROXIED for address in ways.addresses[name]]
    harness.wait_until(lambda: all(map(listens, fronts)), 20, "nginx and HAProxy")
    return started


def listens(address):
    try:
        harness.connect_to(address, 1).close()
        return True
    except OSError:
        return False
