"""Options that earlier versions had: what does their job now.

Who uses one gets exit code 2 and one line. A row stays for two releases.
"""

from collections.abc import Mapping

_DRAFT = "edit that line of the draft that 'kcast servers rotate FILE' makes, and sign it"
WITHDRAWN: Mapping[tuple[str, str], str] = {
    ("kcast analyse", "--png"): "report.html has the figures; open_run(...).figure() gives one as SVG",
    ("kcast analyse", "--runs"): "kcast load compare A B compares two runs",
    ("kcast analyse", "--watch"): "kcast load tells its progress; analyse the run when it has ended",
    ("kcast demo", "--report"): "kcast load records captures, and kcast analyse makes a report of one",
    ("kcast demo", "--no-report"): "the demo makes no report any more",
    ("kcast load", "--master-port"): "locust's master takes a free port",
    ("kcast load", "--name"): "scenarios are named by what differs in them, and --out names the run",
    ("kcast load", "--spectrum"): "kcast analyse has all percentiles of a run",
    ("kcast servers add", "--pending"): "servers are taken at once, and are not announced any more",
    ("kcast servers publish", "--epoch"): "there are no epochs of salts any more",
    ("kcast servers sign", "--part"): "there are no epochs of salts any more",
    **{
        (f"kcast servers {verb}", option): instead
        for verb in ("init", "rotate")
        for option, instead in {
            **dict.fromkeys(("--churn", "--hosts-per-prefix", "--floor", "--expiry"), _DRAFT),
            "--admission": "servers are taken at once; SECURITY.md says what that means",
        }.items()
    },
}
"""(command, option) -> what to use instead; a clause that follows a colon, without a full stop at its end."""


def instead_of(command: str, option: str) -> str | None:
    """Returns what does an option's job now; None where the command never had such an option."""
    return WITHDRAWN.get((command, option))
