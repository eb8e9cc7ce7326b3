# SPDX-License-Identifier: MIT
"""Values for the chart redlockd, so that each pair of settings occurs together in one of them: (name, values).

Settings that exclude each other are left out (certificates of clients without TLS). The order is always the same.
"""

import itertools

PEM = "-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nbm90IG9uZQ==\n-----END PRIVATE KEY-----\n"
ENTRY = {"name": "billing", "sha256": "0" * 64, "prefixes": ["orders/"], "rights": ["acquire", "inspect"], "rate": 100}
MEMBER = {"name": "some-secret", "key": "key"}
ACCOUNTS = {"issuer": "https://kubernetes.default.svc.cluster.local",
            "namespaces": {"shop": {"prefixes": ["shop/"], "rights": ["acquire", "inspect"], "rate": 100}}}

AXES = {
    "access": {
        "insecure": {"access": {"insecure": True}},
        "keys-secret": {"access": {"keysSecret": "their-keys"}, "test": {"keySecret": MEMBER}},
        "keys": {"access": {"keys": [ENTRY]}},
        "mtls": {"access": {"mtls": True}, "tls": {"clientCaSecret": "their-ca"}, "test": {"certificateSecret": "test-certificate"},
                 "serviceMonitor": {"tlsConfig": {"cert": {"secret": {"name": "a", "key": "tls.crt"}}, "keySecret": {"name": "a", "key": "tls.key"}}}},
        "accounts": {"access": {"serviceAccounts": ACCOUNTS}},
        "accounts-keys": {"access": {"serviceAccounts": ACCOUNTS, "keys": [ENTRY], "jwks": {"configMap": "their-jwks"}}},
        "keys-jwks": {"access": {"keysSecret": "their-keys", "jwks": {"configMap": "their-jwks"}}},
        "mtls-keys": {"access": {"mtls": True, "keys": [ENTRY]}, "tls": {"clientCa": PEM}},
    },
    "tls": {
        "plain": {},
        "tls-secret": {"tls": {"enabled": True, "secret": "their-tls"}, "test": {"caSecret": MEMBER}},
        "tls": {"tls": {"enabled": True, "certificate": PEM, "key": KEY}},
    },
    "masters": {
        "external": {"masters": {"external": {"secret": "their-masters"}}},
        "addresses": {"masters": {"external": {"addresses": ["redis://:secret@10.0.0.1:6379", "redis://:secret@10.0.0.2"], "bootstrap": True}}},
        "rediss": {"masters": {"external": {"addresses": ["rediss://a.example:6380"], "caSecret": "masters-ca", "certificateSecret": "masters-cert"}}},
        "three": {"masters": {"bundled": {"enabled": True, "password": "0123456789abcdef"}}},
        "five": {"masters": {"bundled": {"enabled": True, "count": 5, "passwordSecret": "their-password", "appendfsync": "always", "storageClass": "fast",
                                         "onePerNode": False, "bootstrap": False}}},
    },
    "network": {"no-policy": {}, "policy": {"networkPolicy": {"enabled": True, "namespaces": ["billing"], "masters": [{"cidr": "10.0.0.0/24", "port": 6379}]}}},
    "scaling": {"fixed": {}, "hpa": {"autoscaling": {"enabled": True}}, "one": {"replicas": 1, "podDisruptionBudget": {"enabled": False}}},
    "monitor": {"no-monitor": {}, "monitor": {"serviceMonitor": {"enabled": True, "keySecret": MEMBER}}},
    "rules": {"no-rules": {}, "rules": {"prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}}},
    "dashboard": {"no-dashboard": {}, "dashboard": {"dashboard": {"enabled": True}}},
    "account": {"account": {}, "their-account": {"serviceAccount": {"create": False, "name": "theirs"}}},
    "options": {"no-options": {}, "options": {"options": {"max_ttl_ms": 120000, "max_hold_ms": 31536000000, "drift_factor": 0.02, "drain_ms": 2500,
                                                          "key_prefix": "prod:", "allow_origin": ["https://a.example", "https://b.example"],
                                                          "allow_replicas": True}, "listenAddress": "[::]"}},
    "names": {"names": {}, "long-names": {"fullnameOverride": "a-name-that-is-as-long-as-they-come-and-longer-than-fits"}},
}


def merged(parts):
    """One dictionary of several, members of members too."""
    made = {}
    for part in parts:
        for key, value in part.items():
            made[key] = merged([made[key], value]) if isinstance(value, dict) and isinstance(made.get(key), dict) else value
    return made


def possible(settings):
    """None of the pairs that can never be: certificates of clients are a part of TLS, and Prometheus has no token of a service account."""
    return not (str(settings.get("access")).startswith("mtls") and settings.get("tls") == "plain") and \
        not (settings.get("access") == "accounts" and settings.get("monitor") == "monitor")


def pairs_of(settings):
    return set(itertools.combinations(sorted(settings.items()), 2))


def cases():
    missing = {pair for (a, of_a), (b, of_b) in itertools.combinations(sorted(AXES.items()), 2)
               for pair in itertools.product([(a, one) for one in of_a], [(b, one) for one in of_b]) if possible(dict(pair))}
    while missing:
        settings = dict(min(missing))
        for axis, choices in AXES.items():
            if axis not in settings:
                able = [one for one in choices if possible({**settings, axis: one})]
                settings[axis] = max(able, key=lambda one: len(pairs_of({**settings, axis: one}) & missing))  # noqa: B023
        missing -= pairs_of(settings)
        yield "+".join(settings[axis] for axis in AXES if settings[axis] != next(iter(AXES[axis]))) or "defaults", \
            merged(AXES[axis][settings[axis]] for axis in AXES)
