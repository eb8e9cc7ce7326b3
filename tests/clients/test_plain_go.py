# SPDX-License-Identifier: MIT
"""The lines of Go in docs/how-to/clients.md that use no library, put into a program."""

import os
import re
import subprocess

from harness import DIES_WITH_US, ROOT

PROGRAM = """package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"
)

func work(until time.Time, fence int64) {
	state, err := http.Get("http://127.0.0.1:8080/locks/orders/44")
	if err != nil {
		log.Fatal(err)
	}
	var lock struct {
		Held  bool
		Fence int64
	}
	json.NewDecoder(state.Body).Decode(&lock)
	left := time.Until(until)
	fmt.Println(lock.Held, lock.Fence == fence && fence > 0, left > 20*time.Second && left < 30*time.Second)
}

func main() {
LINES}
"""


def test_go_without_a_library(service, tmp_path):
    blocks = re.findall(r"^```go\n(.*?)^```\n", (ROOT / "docs/how-to/clients.md").read_text(encoding="utf-8"), re.M | re.S)
    block, = [block for block in blocks if "http.Post" in block]
    program = PROGRAM.replace("LINES", block).replace("127.0.0.1:8080", service.address)
    (tmp_path / "main.go").write_text(program, encoding="utf-8")
    done = subprocess.run([*DIES_WITH_US, "go", "run", "main.go"], cwd=tmp_path, env={**os.environ, "GOFLAGS": "-mod=mod", "GO111MODULE": "off"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("true true true\n", "", 0)
    assert not service.curl("GET", "/locks/orders/44").json["held"]
