"""The verdict of each test: passed, failed or skipped, read from JUnit reports."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

__all__ = ["Verdict", "from_node", "from_pytest"]

Verdict = Literal["passed", "failed", "skipped"]
WORST: list[Verdict] = ["passed", "skipped", "failed"]


def of(case: ElementTree.Element) -> Verdict:
    """Return the verdict of a testcase element."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def from_pytest(report: Path, source: Path) -> dict[str, Verdict]:
    """Return the verdicts in a report of pytest, by node id. A test whose teardown failed has failed.

    Args:
        report: The XML file; there are no verdicts if it is missing or truncated.
        source: The directory that pytest ran in: the report names modules, and node ids the files.
    """
    verdicts: dict[str, Verdict] = {}
    for case in cases(report, "testcase"):
        module = case.get("classname", "").split(".")
        length = len(module)
        while length and not source.joinpath(*module[:length]).with_suffix(".py").is_file():
            length -= 1
        test = "::".join(["/".join(module[:length]) + ".py", *module[length:], case.get("name", "")])
        # a test that passed and whose teardown failed is in the report twice
        verdicts[test] = max(verdicts.get(test, "passed"), of(case), key=WORST.index)
    return verdicts


def from_node(report: Path, file: str) -> dict[str, Verdict]:
    """Return the verdicts in a report of node's test runner on one file, by file and names from the outermost on."""
    verdicts: dict[str, Verdict] = {}

    def collect(parent: ElementTree.Element, names: str) -> None:
        for element in parent:
            name = f"{names} > {element.get('name')}"
            if element.tag == "testsuite":
                collect(element, name)
            elif element.tag == "testcase":
                verdicts[name] = of(element)

    for root in cases(report, "testsuites"):
        collect(root, file)
    return verdicts


def cases(report: Path, tag: str) -> Iterator[ElementTree.Element]:
    """Yield the elements of one tag; none if the run ended before its report was written."""
    try:
        yield from ElementTree.parse(report).getroot().iter(tag)
    except (FileNotFoundError, ElementTree.ParseError):
        return
