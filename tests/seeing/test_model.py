# SPDX-License-Identifier: MIT
"""The dashboard as Grafana reads it: through the classes that Grafana makes of its own schema (grafana-foundation-sdk).

A name that the schema does not know is passed over in silence, by these classes as by Grafana. So what went through them is compared with the file.
"""

import copy
import json
import sys

import pytest

from seeing_files import ROOT, dashboard

# Not in the schema, and yet read by Grafana.
OUTSIDE = {"annotations/list/1/titleFormat", "templating/list/1/definition", "templating/list/2/definition"}


@pytest.fixture(scope="module")
def reread():
    """A dashboard after it went through the classes."""
    wheel, = (ROOT / "build" / "tools").glob("grafana_foundation_sdk-*.whl")
    sys.path.insert(0, str(wheel))
    from grafana_foundation_sdk.cog import encoder, plugins  # pylint: disable=import-outside-toplevel
    from grafana_foundation_sdk.models import dashboard as models  # pylint: disable=import-outside-toplevel
    plugins.register_default_plugins()
    yield lambda one: json.loads(json.dumps(models.Dashboard.from_json(one), cls=encoder.JSONEncoder))
    sys.path.remove(str(wheel))


def lost(before, after, path=""):
    """Paths of what is in the first and not, or not alike, in the second. Defaults may have been added."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            yield from lost(value, after[name], f"{path}/{name}") if name in after else [f"{path}/{name}"]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after)):
            yield from lost(one, other, f"{path}/{i}")
    elif before != after:
        yield path


def lost_names(reread, one):
    return {path[1:] for path in lost(one, reread(copy.deepcopy(one)))}


def test_nothing_is_lost(reread):
    assert lost_names(reread, dashboard()) == OUTSIDE


@pytest.mark.parametrize("break_it, name", [
    (lambda one: one.update(titel="x"), "titel"),
    (lambda one: one["templating"]["list"][3].update(hidden=2), "templating/list/3/hidden"),
    (lambda one: one["panels"][1]["fieldConfig"]["defaults"].update(units="s"), "panels/1/fieldConfig/defaults/units"),
    (lambda one: one["panels"][1]["options"].update(colourMode="none"), "panels/1/options/colourMode"),
    (lambda one: one["panels"][1]["targets"][0].update(query="up"), "panels/1/targets/0/query"),
    (lambda one: one["links"][0].update(href="x"), "links/0/href"),
    (lambda one: one["panels"][-1]["panels"][0]["fieldConfig"]["defaults"]["custom"].update(thresholdStyle={}),
     "panels/13/panels/0/fieldConfig/defaults/custom/thresholdStyle"),
])
def test_a_name_that_is_misspelled_is_found(reread, break_it, name):
    broken = dashboard()
    break_it(broken)
    assert lost_names(reread, broken) == OUTSIDE | {name}
