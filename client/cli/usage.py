"""Wrong usage, told in one line with what to do instead."""

import re

import click

from kcast.client.cli.withdrawn import instead_of
from kcast.client.errors import did_you_mean

# What a message or topic looks like that has been taken for an option: -5, -3.5.
_NO_OPTION = re.compile(r"-[^A-Za-z-]")

# What click says of a wrong word, in plain words.
_PLAIN = (
    (re.compile(r"is not a valid integer( range)?\b"), "is not a whole number"),
    (re.compile(r"is not a valid float( range)?\b"), "is not a number"),
    (re.compile(r"'\[([A-Z]+)\](\.\.\.)?'"), r"'\1'"),  # an argument that may be left out
)

_ADDRESS = "servers stand in the cluster file: --cluster FILE"
_ADDRESS_OPTIONS = "-p --host --port -L --url -s --server"

# Options of mosquitto_pub, mosquitto_sub and nats that have no equal here (docs/coming-from.md has them all),
# and of nats bench and redis-benchmark; what one verb of kcast bench has and another has not; and guesses.
_ELSEWHERE = {
    ("kcast pub", "kcast sub"): {
        _ADDRESS_OPTIONS: _ADDRESS,
        "-u --username --user -P --pw --password --creds": "there are no users and passwords here",
        "-c --disable-clean-session -i --id -k --keepalive": "servers keep nothing for clients",
        "-q --qos": "there is no QoS: the policy says to how many servers a message goes, --repeat how often",
        "-r --retain -R --retained-only": "nothing is retained for later subscribers",
        "-T --filter-out": "there are no wildcards, so there is nothing to leave out",
        "--queue": "there are no groups of subscribers: each gets each message",
        "--sleep": "use --rate, in messages a second",
        "--reply": "there are no replies: publish on a topic that the other side names",
    },
    ("kcast bench",): {
        f"{_ADDRESS_OPTIONS} -h": _ADDRESS,
        "--msgs -n --requests": "use --count",
        "--clients -c": "use --publishers and --subscribers",
        "--sleep --pubsleep --subsleep": "use --rate, in messages a second",
        "--subscribers": "'kcast bench pub' only publishes: use 'kcast bench pubsub' for both",
        "--publishers": "'kcast bench sub' only subscribes: use 'kcast bench pubsub' for both",
        "--size": "'kcast bench sub' takes what comes, whatever its size",
    },
    ("kcast serve",): {
        "--cluster": "a server knows no others; it listens at --host and --port",
        "--address -a --bind --listen -p": "use --host and --port",
    },
    ("kcast",): {"--cluster": "options stand behind the command, as in kcast pub --cluster FILE"},
}


def one_line(error: click.UsageError) -> str:
    """Returns what is wrong, and what to do, in one line without the command's name."""
    if isinstance(error, click.NoSuchOption):
        text = _no_such_option(error)
    elif type(error).__name__ == "NoArgsIsHelpError" and error.ctx is not None:
        assert isinstance(error.ctx.command, click.Group)
        *others, last = error.ctx.command.list_commands(error.ctx)
        text = f"say what to do: {', '.join(others)} or {last}"
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
        words = "TOPIC -- MESSAGE" if command_of(error) == "kcast pub" else "-- TOPIC"
        return f"{text}; write -- before what begins with a minus sign: {command_of(error)} {words}"
    if advice := _advice(command_of(error), name):
        return f"{text}: {advice}"
    return text + did_you_mean(name, error.possibilities or ())


def _advice(command: str, option: str) -> str:
    """Returns what to do instead of what the option does elsewhere; "" where that is not known."""
    group = "kcast bench" if command.startswith("kcast bench ") else command
    of = next((rows for commands, rows in _ELSEWHERE.items() if group in commands), {})
    return next((advice for options, advice in of.items() if option in options.split()), "")
