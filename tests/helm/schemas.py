# SPDX-License-Identifier: MIT
"""Makes TOOLS/schemas for kubeconform, from what ./dev has fetched into TOOLS:

    v1.29.0/, v1.37.0/  schemas of Kubernetes, the oldest that the charts are for and the newest at hand: PyPI's kubernetes-validate
    crd/                those of the Prometheus operator's objects, out of its Go module

    schemas.py TOOLS
"""

import json
import pathlib
import shutil
import sys
import zipfile

import yaml

VERSIONS = ("v1.29.0", "v1.37.0")
CRDS = ("servicemonitors", "prometheusrules")


def unpack(wheel, target):
    """The strict schemas of each version, which refer to one file of definitions: here to the one beside them, and not to where $id says."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = pathlib.PurePosixPath(name)
            version = path.parent.name.removesuffix("-local-strict")
            if version in VERSIONS and path.parent.name.endswith("-local-strict"):
                schema = json.loads(archive.read(name).decode().replace('"/api/_definitions.json#', '"_definitions.json#'))
                schema.pop("$id", None)
                (target / version).mkdir(parents=True, exist_ok=True)
                (target / version / path.name).write_text(json.dumps(schema))
    assert all(len(list((target / version).iterdir())) > 500 for version in VERSIONS)


def strict(schema):
    """The schema of a custom resource says what may be there; here also: nothing else."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def custom_resource(path, target):
    crd = yaml.safe_load(path.read_text())["spec"]
    for version in crd["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        target.mkdir(exist_ok=True)
        (target / f"{crd['names']['kind'].lower()}-{crd['group']}-{version['name']}.json").write_text(json.dumps(schema))


def main():
    tools = pathlib.Path(sys.argv[1])
    new = tools / "schemas.new"
    shutil.rmtree(new, ignore_errors=True)
    unpack(next(tools.glob("kubernetes_validate-*.whl")), new)
    operator = pathlib.Path(json.loads((tools / "prometheus-operator.json").read_text())["Dir"])
    for name in CRDS:
        custom_resource(operator / "example" / "prometheus-operator-crd" / f"monitoring.coreos.com_{name}.yaml", new / "crd")
    shutil.rmtree(tools / "schemas", ignore_errors=True)
    new.rename(tools / "schemas")


main()
