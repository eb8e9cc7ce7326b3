# SPDX-License-Identifier: MIT
"""Client of redlockd, a distributed lock service over HTTP.

    import redlockd
    with redlockd.Client(["https://a:8443", "https://b:8443"], key=KEY).lock("orders/42", ttl=30, wait=60) as lease:
        for item in work:
            lease.check()  # raises LockLost
            save(item, fence=lease.fence)

`redlockd.aio` has the same for asyncio.
"""

from ._rules import NoLease
from ._threads import Client, Lease, Lock, Lost
from ._wire import VERSION as __version__
from .errors import (Draining, Error, Forbidden, InvalidRequest, LeaseExpired, Locked, LockLost, MethodNotAllowed,
                     NoAnswer, NoQuorum, NotFound, NotOwner, SplitVote, TooLarge, TooManyRequests, Unauthorized)

__all__ = ["Client", "Draining", "Error", "Forbidden", "InvalidRequest", "Lease", "LeaseExpired", "Lock",
           "LockLost", "Locked", "Lost", "MethodNotAllowed", "NoAnswer", "NoLease", "NoQuorum", "NotFound", "NotOwner",
           "SplitVote", "TooLarge", "TooManyRequests", "Unauthorized", "__version__"]
