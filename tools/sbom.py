"""Writes the components of a broker as CycloneDX 1.6: sbom.py FILE (usually dist/leveret.cdx.json).

The packages are those that leveret and its extras for brokers need, as installed here, without those for tests and
documentation. Bundled code is added: each directory of vendor/ in the web page, whose VERSION.md begins with "NAME
VERSION, by WHOM, LICENCE (LICENSE)". The file is checked against CycloneDX's schema, and depends on the versions only.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement

EXTRAS = ("", "argon2", "endpoint", "lake", "iceberg", "otel", "top")
VENDOR = Path(__file__).parents[1] / "src" / "leveret" / "admin" / "site" / "vendor"
HEADING = re.compile(r"(?P<name>\S+) (?P<version>\d[\w.]*), by [^,]+, (?P<licence>\S+) \(LICENSE\)")


def needed(name: str, extra: str) -> Iterator[tuple[str, Distribution]]:
    """Yield (requiring package, distribution) for all direct and indirect dependencies of a package with this extra."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name != name:
            yield name, distribution(requirement.name)
        for inner in ("", *requirement.extras):
            yield from needed(requirement.name, inner)


def component(found: Distribution) -> Component:
    """Return the component of a PyPI package."""
    meta = found.metadata
    text = meta.get("License-Expression") or meta.get("License") or ""
    licences = [LicenseFactory().make_from_string(text)] if text and len(text) < 100 else []
    name = re.sub(r"[-_.]+", "-", meta["Name"]).lower()
    url = PackageURL("pypi", None, name, found.version)
    return Component(
        name=name, version=found.version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url), licenses=licences,
        description=meta.get("Summary"),
    )  # fmt: skip


def vendored(directory: Path) -> Component:
    """Return the component of a directory of vendor/, with the digests of its files."""
    heading = HEADING.match((directory / "VERSION.md").read_text())
    if heading is None:
        sys.exit(f'{directory}/VERSION.md must begin with "NAME VERSION, by WHOM, LICENCE (LICENSE)"')
    url = PackageURL("npm", None, heading["name"].lower(), heading["version"])
    files = [
        Component(
            name=path.name, type=ComponentType.FILE, bom_ref=f"{url}#{path.name}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())],
        )
        for path in sorted(directory.iterdir())
    ]  # fmt: skip
    return Component(
        name=heading["name"], version=heading["version"], type=ComponentType.LIBRARY, purl=url, bom_ref=str(url),
        licenses=[LicenseFactory().make_from_string(heading["licence"])], components=files,
        properties=[Property(name="leveret:vendored", value=directory.name)],
    )  # fmt: skip


def bill(vendor: Path = VENDOR) -> str:
    """Return the whole document as JSON. Exits the program with a message if a package is not installed."""
    main = component(distribution("leveret"))
    main.type = ComponentType.APPLICATION
    bom = Bom()
    bom.metadata.component = main
    parts: dict[str, Component] = {"leveret": main}
    edges: set[tuple[str, str]] = set()
    reasons: dict[str, set[str]] = {}
    try:
        for extra in EXTRAS:
            for user, found in needed("leveret", extra):
                part = component(found)
                name = parts.setdefault(part.name, part).name
                edges.add((re.sub(r"[-_.]+", "-", user).lower(), name))
                reasons.setdefault(name, set()).add(extra or "leveret")
    except PackageNotFoundError as error:
        sys.exit(f"{error.name} is not installed, so what it needs is unknown: make sbom installs it")
    for name, extras in reasons.items():
        why = "leveret" if "leveret" in extras else ", ".join(f"leveret[{extra}]" for extra in sorted(extras))
        parts[name].properties.add(Property(name="leveret:needed-by", value=why))
        bom.components.add(parts[name])
    for directory in sorted(path.parent for path in vendor.glob("*/VERSION.md")):
        part = vendored(directory)
        bom.components.add(part)
        bom.register_dependency(main, [part])
    for name, part in parts.items():
        bom.register_dependency(part, [parts[needs] for user, needs in sorted(edges) if user == name])
    bom.serial_number = None
    bom.metadata.timestamp = None
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        sys.exit(f"this is no CycloneDX: {problem}")
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(bill() + "\n")
