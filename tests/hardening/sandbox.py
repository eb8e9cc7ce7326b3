# SPDX-License-Identifier: MIT
"""Runs a program with no system calls but those of a list: any other one kills it (SIGSYS). It does the same as
systemd for SystemCallFilter= and RestrictAddressFamilies=, with the same libseccomp.

    python3 sandbox.py FILE PROGRAM [ARGUMENT…]       FILE: names of system calls, one a line
"""

import ctypes
import errno
import os
import socket
import sys

ALLOW, KILL = 0x7FFF0000, 0x80000000
EQUAL = 4


class Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def main():
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Compare)]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(KILL)
    with open(sys.argv[1], encoding="ascii") as names:
        numbers = {name: library.seccomp_syscall_resolve_name(name.encode()) for name in names.read().split()}
    for name, number in numbers.items():
        if number >= 0 and name != "socket":  # the others are of other processors
            assert library.seccomp_rule_add_array(context, ALLOW, number, 0, None) == 0, name
    for family, action in ((socket.AF_UNIX, ALLOW), (socket.AF_INET, ALLOW), (socket.AF_INET6, ALLOW), (socket.AF_NETLINK, 0x00050000 | errno.EAFNOSUPPORT)):
        rule = Compare(0, EQUAL, family, 0)
        assert "socket" not in numbers or library.seccomp_rule_add_array(context, action, numbers["socket"], 1, ctypes.byref(rule)) == 0
    assert library.seccomp_load(context) == 0, "seccomp_load"
    os.execv(sys.argv[2], sys.argv[2:])


main()
