"""The names of scenarios, as people read them on the screen. Pure."""

from collections.abc import Mapping

from kcast.spark.findings.findings import Findings


def names(findings: Findings) -> Mapping[int, str]:
    """The name of each scenario, by its cell: with its run's id if there are several runs."""
    scenarios = findings.table("scenarios")
    has_several = len({row["run"] for row in scenarios}) > 1
    return {
        row["cell"]: f"{row['run']}/{row['scenario']}" if has_several else row["scenario"]
        for row in scenarios
    }
