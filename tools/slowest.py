"""Prints the files whose tests took longest, from pytest's junit XML: slowest.py FILE [COUNT]."""

from __future__ import annotations

import sys
from collections import Counter
from xml.etree import ElementTree


def main(path: str, count: str = "30") -> None:
    """A file's seconds are the sum of its tests, including set-up; files may have run in parallel."""
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        seconds[case.get("classname", "")] += float(case.get("time", 0))
    slowest = seconds.most_common(int(count))
    share = sum(taken for _, taken in slowest) / seconds.total()
    print(f"\n{len(slowest)} of {len(seconds)} files of tests take {share:.0%} of {seconds.total():.0f} s:")
    for name, taken in slowest:
        print(f"{taken:8.1f} s  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
