#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The driver of the library for Python: tests/clients/driver.py has its protocol. `--aio`: of redlockd.aio."""

import asyncio
import collections
import http.client
import json
import os
import queue
import signal
import ssl
import sys
import threading
import time
import urllib.parse

import redlockd
import redlockd.aio

CLIENT = ("key", "token_file", "owner", "timeout", "ca", "certificate", "headers")
OPTIONS = ("ttl", "wait", "margin", "at_least", "owner", "metadata", "mode", "slots")
OUTPUT = threading.Lock()


class Raised(Exception):
    """By a block."""


def say(command, **answer):
    with OUTPUT:
        sys.stdout.write(json.dumps({"id": command["id"], **answer}) + "\n")
        sys.stdout.flush()


def error_of(error):
    if isinstance(error, redlockd.Error):
        cause = {"cause": error.cause} if isinstance(error, redlockd.LockLost) else {}
        return {"code": error.code, "detail": str(error), "status": error.status, **cause}
    code = {Raised: "raised", KeyboardInterrupt: "interrupted", asyncio.CancelledError: "interrupted"}.get(type(error), "other")
    return {"code": code, "detail": repr(error), "status": 0}


def granted(lease):
    return {"fence": lease.fence, "remaining": lease.remaining, "slot": lease.slot}


def given(command, names):
    return {name: command[name] for name in names if command.get(name) is not None}


class State:
    def __init__(self, library):
        self.library, self.clients, self.leases, self.wanted = library, {}, {}, collections.Counter()

    def options(self, command):
        def on_wanted():
            self.wanted[command["lease"]] += 1
            raise Raised
        return {**given(command, OPTIONS), "on_wanted": on_wanted}

    def new_client(self, command):
        options = given(command, CLIENT)
        if "certificate" in options:
            options["certificate"] = tuple(options["certificate"])
        if "headers" in options and self.library is redlockd:  # aio gets the mapping
            options["headers"] = lambda: command["headers"]
        self.clients[command["client"]] = self.library.Client(command["servers"], **options)


def add_one(path):
    """Nobody else may do so at the same time."""
    with open(path, encoding="utf-8") as file:
        number = int(file.read())
    time.sleep(0.001)
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(number + 1))


def per_pair(command, begun):
    return {"milliseconds": 1000 * (time.perf_counter() - begun) / command["times"]}


def address_of(command):
    """Host, port, and a context of TLS or None."""
    url = urllib.parse.urlsplit(command["server"])
    context = ssl.create_default_context(cafile=command.get("ca")) if url.scheme == "https" else None
    return url.hostname, url.port, context


def bare(command):
    """The requests of a pair on one kept connection of http.client."""
    host, port, context = address_of(command)
    connection = http.client.HTTPConnection(host, port)
    if context:
        connection = http.client.HTTPSConnection(host, port, context=context)

    def ask(method, headers):
        connection.request(method, "/locks", json.dumps({"resource": command["resource"]}), headers)
        content = connection.getresponse().read()
        return json.loads(content) if content else None
    connection.connect()
    begun = time.perf_counter()
    for _ in range(command["times"]):
        lease = ask("POST", {"Idempotency-Key": os.urandom(16).hex()})
        ask("DELETE", {"Lock-Token": lease["token"]})
    return per_pair(command, begun)


async def bare_aio(command):
    """The same with the streams of asyncio."""
    host, port, context = address_of(command)
    reader, writer = await asyncio.open_connection(host, port, ssl=context)

    async def ask(method, header):
        content = json.dumps({"resource": command["resource"]}).encode()
        head = f"{method} /locks HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(content)}\r\n{header}\r\n\r\n"
        writer.write(head.encode() + content)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:-2])
        answer = await reader.readexactly(int(fields.get("content-length", 0)))
        return json.loads(answer) if answer else None
    begun = time.perf_counter()
    for _ in range(command["times"]):
        lease = await ask("POST", f"Idempotency-Key: {os.urandom(16).hex()}")
        await ask("DELETE", f"Lock-Token: {lease['token']}")
    writer.close()
    return per_pair(command, begun)


def carry_out(state, command):
    """Returns the answer."""
    do, client, lease = command["do"], state.clients.get(command.get("client")), state.leases.get(command.get("lease"))
    if do == "client":
        return state.new_client(command) or {}
    if do == "acquire":
        call = client.try_acquire if command.get("try") else client.acquire
        lease = call(command["resource"], **state.options(command))
        state.leases[command["lease"]] = lease
        return granted(lease) if lease else {"held": False}
    if do == "block":
        with client.lock(command["resource"], **state.options(command)) as lease:
            state.leases[command["lease"]] = lease
            time.sleep(command.get("seconds") or 0)
            if command.get("until_lost"):
                lease.lost.wait()
            if command.get("raise"):
                raise Raised
        return {"fence": lease.fence}
    if do == "check":
        return lease.check() or {}
    if do == "remaining":
        return {"remaining": lease.remaining}
    if do == "lost":
        return {"lost": lease.lost.wait(command["timeout"])}
    if do == "release":
        return {"released": lease.release(**given(command, ["keep"]))}
    if do == "waiters":
        return {"waiters": lease.waiters, "wanted": state.wanted[command["lease"]]}
    if do == "count":
        fences = []
        for _ in range(command["times"]):
            with client.lock(command["resource"], **state.options(command)) as lease:
                add_one(command["file"])
                fences.append(lease.fence)
        return {"fences": fences}
    if do == "watch":
        states = client.watch(command["resource"])
        for _ in range(command["count"] - 1):
            say(command, state=next(states), more=True)
        return {"state": next(states)}
    if do == "force":
        return client.force(command["resource"], command.get("fence")) or {}
    if do == "pairs":
        begun = time.perf_counter()
        for _ in range(command["times"]):
            client.try_acquire(command["resource"]).release()
        return per_pair(command, begun)
    if do == "bare":
        return bare(command)
    if do == "time":
        return {"time": time.time()}
    raise ValueError(do)


def answer(state, command):
    try:
        say(command, **carry_out(state, command))
    except BaseException as error:  # noqa: BLE001
        say(command, error=error_of(error))


def threads():
    """What may be interrupted runs in the main thread, as Python interrupts no other; the rest in threads of their
    own."""
    state, foreground = State(redlockd), queue.Queue()

    def read():
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            elif command.get("interruptible"):
                foreground.put(command)
            elif command["do"] == "client":
                answer(state, command)
            else:
                threading.Thread(target=answer, args=(state, command), daemon=True).start()
        foreground.put(None)
    threading.Thread(target=read, daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while (command := foreground.get()) is not None:
        answer(state, command)


async def carry_out_aio(state, command):
    do, client, lease = command["do"], state.clients.get(command.get("client")), state.leases.get(command.get("lease"))
    if do == "acquire":
        call = client.try_acquire if command.get("try") else client.acquire
        lease = await call(command["resource"], **state.options(command))
        state.leases[command["lease"]] = lease
        return granted(lease) if lease else {"held": False}
    if do == "block":
        async with client.lock(command["resource"], **state.options(command)) as lease:
            state.leases[command["lease"]] = lease
            await asyncio.sleep(command.get("seconds") or 0)
            if command.get("until_lost"):
                await lease.lost.wait()
            if command.get("raise"):
                raise Raised
        return {"fence": lease.fence}
    if do == "lost":
        try:
            return {"lost": await asyncio.wait_for(lease.lost.wait(), command["timeout"])}
        except asyncio.TimeoutError:
            return {"lost": lease.lost.is_set()}  # wait_for() without time does not even look
    if do == "release":
        return {"released": await lease.release(**given(command, ["keep"]))}
    if do == "count":
        fences = []
        for _ in range(command["times"]):
            async with client.lock(command["resource"], **state.options(command)) as lease:
                await asyncio.get_running_loop().run_in_executor(None, add_one, command["file"])
                fences.append(lease.fence)
        return {"fences": fences}
    if do == "watch":
        left = command["count"]
        async for found in client.watch(command["resource"]):
            left -= 1
            if left == 0:
                return {"state": found}
            say(command, state=found, more=True)
    if do == "force":
        return await client.force(command["resource"], command.get("fence")) or {}
    if do == "pairs":
        begun = time.perf_counter()
        for _ in range(command["times"]):
            await (await client.try_acquire(command["resource"])).release()
        return per_pair(command, begun)
    if do == "bare":
        return await bare_aio(command)
    return carry_out(state, command)


async def tasks():
    state, running, foreground = State(redlockd.aio), set(), []

    async def answer_aio(command):
        try:
            say(command, **await carry_out_aio(state, command))
        except BaseException as error:  # noqa: BLE001
            say(command, error=error_of(error))
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        if command["do"] == "interrupt":
            foreground[-1].cancel()
            continue
        if command["do"] == "client":
            answer(state, command)
            continue
        task = asyncio.ensure_future(answer_aio(command))
        running.add(task)
        task.add_done_callback(running.discard)
        foreground += [task] if command.get("interruptible") else []
    for task in running:
        task.cancel()
    await asyncio.gather(*(lease.release() for lease in state.leases.values() if lease))  # no loop, no release at exit


if __name__ == "__main__":
    asyncio.run(tasks()) if "--aio" in sys.argv else threads()
