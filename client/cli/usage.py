"""Wrong usage, told in one line with what to do instead."""

import re

import click

from kcast.client.cli.withdrawn import instead_of
from kcast.client.resembling import did_you_mean

# What a message or topic looks like that has been taken for an option: -5, -3.5.
_NO_OPTION = re.compile(r"-[^A-Za-z-]")

# What click says of a wrong word, in plain words.
_PLAIN = (
    (re.compile(r"is not a valid integer( range)?\b"), "is not a whole number"),
    (re.compile(r"is not a valid float( range)?\b"), "is not a number"),
    (re.compile(r"'\[([A-Z]+)\](\.\.\.)?'"), r"'\1'"),  # an argument that may be left out
)

_ADDRESS = "servers stand in the cluster file: --cluster FILE"
_OPEN_TO_ALL = "there are no users and passwords here"
_NO_SESSION = "servers keep nothing for clients"
_NO_QOS = "there is no QoS: the policy says to how many servers a message goes, --repeat how often"

# Options of mosquitto_pub, mosquitto_sub and nats that have no equal here. docs/coming-from.md has them all.
_ELSEWHERE = {
    **dict.fromkeys(("-p", "--host", "--port", "-L", "--url", "-s", "--server"), _ADDRESS),
    **dict.fromkeys(("-u", "--username", "--user", "-P", "--pw", "--password", "--creds"), _OPEN_TO_ALL),
    **dict.fromkeys(("-c", "--disable-clean-session", "-i", "--id", "-k", "--keepalive"), _NO_SESSION),
    **dict.fromkeys(("-q", "--qos"), _NO_QOS),
    **dict.fromkeys(("-r", "--retain", "-R", "--retained-only"), "nothing is retained for later subscribers"),
    **dict.fromkeys(("-T", "--filter-out"), "there are no wildcards, so there is nothing to leave out"),
    "--queue": "there are no groups of subscribers: each gets each message",
    "--sleep": "use --rate, in messages a second",
    "--reply": "there are no replies: publish on a topic that the other side names",
}

# The same of nats bench and redis-benchmark, and what one verb of kcast bench has and another has not.
_OF_BENCH = {
    **dict.fromkeys(("--msgs", "-n", "--requests"), "use --count"),
    **dict.fromkeys(("--clients", "-c"), "use --publishers and --subscribers"),
    **dict.fromkeys(("--sleep", "--pubsleep", "--subsleep"), "use --rate, in messages a second"),
    **dict.fromkeys(("--multisubject", "--multisubjectmax"), "use --topics"),
    **dict.fromkeys(("-p", "-h", "--host", "--port", "--url", "-s", "--server"), _ADDRESS),
    "-d": "use --size",
    "--csv": "use --json",
    "--no-progress": "progress goes to standard error, and figures to standard output",
    "--subscribers": "'kcast bench pub' only publishes: use 'kcast bench pubsub' for both",
    "--publishers": "'kcast bench sub' only subscribes: use 'kcast bench pubsub' for both",
    "--size": "'kcast bench sub' takes what comes, whatever its size",
}

_OF_SERVE = {
    "--cluster": "a server knows no others; it listens at --host and --port",
    **dict.fromkeys(("--address", "-a", "--bind", "--listen"), "use --host and --port"),
    "-p": "use --port",
}


def one_line(error: click.UsageError) -> str:
    """Returns what is wrong, and what to do, in one line without the command's name."""
    if isinstance(error, click.NoSuchOption):
        text = _no_such_option(error)
    else:
        text = " ".join(error.format_message().split())
        for pattern, plain in _PLAIN:
            text = pattern.sub(plain, text)
        text = text[:1].lower() + text[1:] if text[1:2].islower() else text
        if command_of(error) == "kcast serve" and "extra argument" in text:
            text += ": it listens at --host and --port"
    return f"{text.removesuffix('.')} (see {command_of(error)} --help)"


def command_of(error: click.UsageError) -> str:
    """Returns the command that was used wrongly, as it is typed: `kcast pub`."""
    path = error.ctx.command_path.split() if error.ctx else [""]
    return " ".join(("kcast", *path[1:]))


def _no_such_option(error: click.NoSuchOption) -> str:
    name = error.option_name
    if (instead := instead_of(command_of(error), name)) is not None:
        return f"the option {name} was withdrawn: {instead}"
    text = f"no such option {name}"
    command = error.ctx.command if error.ctx else None
    takes_words = command is not None and any(isinstance(each, click.Argument) for each in command.params)
    if takes_words and _NO_OPTION.match(name):
        return f"{text}; write -- before what begins with a minus sign: {_with_dashes(error)}"
    if advice := _advice(command_of(error), name):
        return f"{text}: {advice}"
    return text + did_you_mean(name, error.possibilities or ())


def _advice(command: str, option: str) -> str:
    """Returns what to do instead of what the option does elsewhere; "" where that is not known."""
    if command.startswith("kcast bench "):
        return _OF_BENCH.get(option, "")
    if command == "kcast serve":
        return _OF_SERVE.get(option, "")
    if command == "kcast" and option == "--cluster":
        return "options stand behind the command, as in kcast pub --cluster FILE"
    return _ELSEWHERE.get(option, "") if command in ("kcast pub", "kcast sub") else ""


def _with_dashes(error: click.NoSuchOption) -> str:
    words = {"pub": "TOPIC -- MESSAGE"}.get(error.ctx.command.name or "" if error.ctx else "", "-- TOPIC")
    return f"{command_of(error)} {words}"
