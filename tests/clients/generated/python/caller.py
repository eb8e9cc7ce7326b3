# SPDX-License-Identifier: MIT
"""A caller of the Python client that openapi-python-client makes from openapi.yaml: takes a lock, is refused a second time, extends, looks, releases,
and asks a redlockd without a quorum. Prints one word for each step; test_generated.py reads them. No key: a plain Client will do."""
import sys

from redlockd_client import Client
from redlockd_client.api.leases import acquire_lock, extend_lock, extend_locks, get_locks, inspect_lock, release_lock
from redlockd_client.api.operation import get_masters
from redlockd_client.models import (AcquireRequest, AcquireUnavailableProblem, ExtendItem, ExtendNamedRequest, ExtendRequest, Lease, LeaseExpiredProblem, LeaseProblem, LockedProblem, LockList, LockState,
                                    MasterList, ReleaseRequest)

url, resource, ill = sys.argv[1:]
client = Client(url)


def tell(*words):
    print(*(str(word).lower() if isinstance(word, bool) else word for word in words))


answer = acquire_lock.sync_detailed(client=client, body=AcquireRequest(resource=resource, ttl_ms=30000))
lease = answer.parsed
assert isinstance(lease, Lease)
tell("acquired", answer.status_code.value, lease.fence > 0 and lease.validity_ms < 30000)

answer = acquire_lock.sync_detailed(client=client, body=AcquireRequest(resource=resource))
locked = answer.parsed
typed = isinstance(locked, LockedProblem)
tell("refused", answer.status_code.value, typed, locked.code, locked.retry_after_ms > 0, locked.holder.fence == lease.fence, locked.votes.needed)

answer = extend_lock.sync_detailed(resource, client=client, body=ExtendRequest(ttl_ms=60000), lock_token=lease.token)
tell("extended", answer.status_code.value, answer.parsed.validity_ms > 30000, answer.parsed.fence == lease.fence)

state = inspect_lock.sync(resource, client=client)
assert isinstance(state, LockState)
tell("inspected", state.held, state.fence == lease.fence)

answer = extend_locks.sync_detailed(client=client, body=ExtendNamedRequest(resource=resource), lock_token=lease.token)
state, page = get_locks.sync(client=client, resource=resource), get_locks.sync(client=client, prefix=resource)
assert isinstance(state, LockState) and isinstance(page, LockList)
tell("named", answer.status_code.value, answer.parsed.fence == lease.fence, state.fence == lease.fence, len(page.locks))

items = [ExtendItem(token=lease.token, resource=name) for name in (resource, resource + "/other")]
answer = extend_locks.sync_detailed(client=client, body=ExtendNamedRequest(leases=items))
good, bad = answer.parsed.leases
assert isinstance(good, Lease) and isinstance(bad, LeaseProblem)
tell("many", answer.status_code.value, good.fence == lease.fence, bad.code)

answer = release_lock.sync_detailed(resource, client=client, body=ReleaseRequest(token=lease.token))
tell("released", answer.status_code.value)

answer = release_lock.sync_detailed(resource, client=client, body=ReleaseRequest(token=lease.token))
tell("expired", answer.status_code.value, isinstance(answer.parsed, LeaseExpiredProblem), answer.parsed.code)

answer = acquire_lock.sync_detailed(client=Client(ill), body=AcquireRequest(resource=resource))
tell("unavailable", answer.status_code.value, isinstance(answer.parsed, AcquireUnavailableProblem), answer.parsed.code, answer.parsed.votes.needed)

masters = get_masters.sync(client=client)
assert isinstance(masters, MasterList)
tell("masters", masters.quorum.voting, masters.masters[0].reason is None, isinstance(masters.masters[0].version, str))
