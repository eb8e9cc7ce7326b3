# SPDX-License-Identifier: MIT
"""The SBOM of the image (docker/assemble.sh) against the published schema; the SBOM and the entries of dpkg against the
files."""

import hashlib
import json
import re
import urllib.parse
import zipfile

import jsonschema
import pytest

from harness import ROOT
from compose_world import BUILT, VERSION_BUILT

SBOM = "/usr/share/redlockd/sbom.cdx.json"
STATUS = "var/lib/dpkg/status.d"


@pytest.fixture(scope="module")
def sbom(image):
    return json.loads((image / SBOM[1:]).read_text())


@pytest.fixture(scope="module")
def packages(sbom):
    return {one["name"]: one for one in sbom["components"] if one["type"] == "library"}


@pytest.fixture(scope="module")
def entries(image):
    """The entries of status.d: {package: {field: value}}."""
    found = {}
    for path in (image / STATUS).iterdir():
        if path.suffix != ".md5sums":
            found[path.name] = dict(re.findall(r"^([A-Za-z-]+): (.*)$", path.read_text(), re.M))
    return found


def additional_items(validator, allowed, instance, schema):
    """As jsonschema has it, whose version in Debian 12 cannot write its own message where items are objects."""
    if allowed is False and isinstance(schema.get("items"), list) and len(instance) > len(schema["items"]):
        yield jsonschema.ValidationError("too many items")


@pytest.fixture(scope="module")
def validator():
    """From PyPI's cyclonedx-python-lib, which ships the schemas of CycloneDX."""
    wheel, = (ROOT / "build" / "tools").glob("cyclonedx_python_lib-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        schemas = {f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json": json.loads(archive.read(f"cyclonedx/schema/_res/{name}.SNAPSHOT.schema.json"))
                   for name in ("bom-1.6", "spdx", "jsf-0.82")}
    schema = schemas["http://cyclonedx.org/schema/bom-1.6.SNAPSHOT.schema.json"]
    resolver = jsonschema.RefResolver.from_schema(schema, store=schemas)
    kind = jsonschema.validators.extend(jsonschema.Draft7Validator, {"additionalItems": additional_items})
    return kind(schema, resolver=resolver, format_checker=jsonschema.FormatChecker())


def every_file(image):
    return {f"/{path.relative_to(image)}" for path in image.rglob("*") if path.is_file() and not path.is_symlink()}


def files_of(component):
    return {one["name"]: one["hashes"][0]["content"] for one in component.get("components", [])}


def test_by_the_schema(sbom, validator):
    assert not [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(sbom)]


@pytest.mark.parametrize("break_it", [
    lambda sbom: sbom.pop("bomFormat"), lambda sbom: sbom["components"][0].pop("type"), lambda sbom: sbom["components"][0].update(surprise=1),
    lambda sbom: sbom["components"][1]["licenses"][0]["license"].update(id="No-Such-Licence"),
    lambda sbom: sbom["components"][1]["components"][0]["hashes"][0].update(content="xyz"),
])
def test_the_schema_does_look(sbom, validator, break_it):
    broken = json.loads(json.dumps(sbom))
    break_it(broken)
    assert list(validator.iter_errors(broken))


def test_each_file_of_the_image_once(sbom, image):
    """Nothing is in the image that the SBOM does not name, with the same content, and nothing else is named. It cannot name itself, and is made of status.d."""
    named = [name for component in sbom["components"] for name in files_of(component)]
    assert len(named) == len(set(named)) > 60
    assert set(named) == {name for name in every_file(image) if name != SBOM and not name.startswith(f"/{STATUS}/")}
    for component in sbom["components"]:
        for name, content in files_of(component).items():
            assert hashlib.sha256((image / name[1:]).read_bytes()).hexdigest() == content, name


def test_packages_are_those_of_dpkg(packages, entries):
    assert set(packages) == set(entries)
    for name, entry in entries.items():
        package = packages[name]
        assert package["version"] == entry["Version"] and entry["Package"] == name and entry["Status"] == "install ok installed"
        location, _, query = package["purl"].partition("?")
        assert location == f"pkg:deb/debian/{name}@{urllib.parse.quote(entry['Version'], safe='~')}"
        assert dict(urllib.parse.parse_qsl(query, keep_blank_values=True)).items() >= {"arch": entry["Architecture"], "distro": "debian-13"}.items()


def test_files_are_those_of_their_packages(packages, image):
    """By the sums that the packages came with: each library is of the package that it is said to be of, and was not changed."""
    without = {"/etc/ssl/certs/ca-certificates.crt"}  # made when the package was installed
    for name, package in packages.items():
        sums = {f"/{path}": content for content, path in re.findall(r"^(\w{32})  (.*)$", (image / STATUS / f"{name}.md5sums").read_text(), re.M)}
        assert set(sums) | without == set(files_of(package)) | without, name
        for path, content in sums.items():
            assert hashlib.md5((image / path[1:]).read_bytes()).hexdigest() == content, path
        assert sums or name == "ca-certificates"


def test_licences(sbom, packages, image):
    """Each package says its licences, and the text that they come from is in the image. Debian's names, from copyright files that can be read by programs."""
    for name, package in packages.items():
        copyright_file = image / "usr" / "share" / "doc" / name / "copyright"
        assert copyright_file.is_file() and str(copyright_file.relative_to(image)) in {path[1:] for path in files_of(package)}
        names = [one["license"]["name"] for one in package["licenses"]]
        assert names and len(names) == len(set(names)), name
        if names != [f"see /usr/share/doc/{name}/copyright"]:
            text = copyright_file.read_text(errors="replace")
            assert all(re.search(rf"^License:\s*{re.escape(one)}\s*$", text, re.M) for one in names), name
    read = [name for name, package in packages.items() if not package["licenses"][0]["license"]["name"].startswith("see ")]
    assert len(read) > len(packages) / 2, read
    own, = (one for one in sbom["components"] if one["name"] == "redlockd")
    assert own["licenses"] == [{"license": {"id": "MIT"}}]
    assert (image / "usr/share/doc/redlockd/copyright").read_text() == (ROOT / "LICENSE").read_text()


def test_what_depends_on_what(sbom, packages):
    own, = (one for one in sbom["components"] if one["name"] == "redlockd")
    assert own["version"] == VERSION_BUILT and own["properties"] == [{"name": "redlockd:revision", "value": "0123456789ab"}]
    references = {one["bom-ref"] for one in sbom["components"]} | {sbom["metadata"]["component"]["bom-ref"]}
    tree = {one["ref"]: set(one["dependsOn"]) for one in sbom["dependencies"]}
    assert tree["redlockd"] == {one["bom-ref"] for one in packages.values()}
    assert set(tree) | set().union(*tree.values()) == references
    system, = (one for one in sbom["components"] if one["type"] == "operating-system")
    assert (system["name"], system["version"]) == ("debian", "13")
    assert (BUILT / "image" / "etc" / "os-release").exists()
