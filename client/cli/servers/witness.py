"""`kcast servers witness`: runs a witness, which cosigns the checkpoints of logs."""

import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import click

from kcast.client.cli.common import count_of, errors_as_lines, say, value_option
from kcast.client.cli.servers.terms import read_keys
from kcast.client.cli.text import tell
from kcast.client.clusters.cluster import parse_address
from kcast.client.trust.forms import document
from kcast.client.trust.forms.document import DOCUMENT_BYTES_MAX
from kcast.client.trust.forms.note import NoteError, SigningKey, VerifierKey, is_key_name
from kcast.client.trust.publisher.editing import ArgumentError
from kcast.client.trust.state import keys
from kcast.client.trust.state.places import dropped, state_root
from kcast.client.trust.state.store import Store
from kcast.client.trust.witness import witness as witnesses
from kcast.client.trust.witness.witness import Witness
from kcast.client.trust.witness.witnessing import Status, WitnessCore
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.errors import KcastError

_VERB = "servers witness"
_LOOK_INTERVAL_S = 60.0
_LISTEN = "127.0.0.1:7480"


def _address(ctx: click.Context, param: click.Parameter, value: str) -> Address:
    try:
        return parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("witness")
@click.argument("name")
@click.option("--log", "logs", multiple=True, metavar="VKEY", help="The key of a log to serve; repeatable.")
@value_option(
    "--trust documents",
    str,
    "A trust document whose log to serve, in place of --log, or the name of a list that is known here.",
    unit="FILE|@NAME",
    multiple=True,
)
@value_option(
    "--listen address",
    str,
    "Where to serve, over HTTP. A web server before it adds TLS.",
    _LISTEN,
    "IP:PORT",
    callback=_address,
)
@click.option("--url", default="", metavar="URL", help="What logs reach it by.  [default: that of --listen]")
@value_option(
    "--state folder",
    click.Path(path_type=Path),
    "Its key, and what it has cosigned.  [default: ~/.local/state/kcast/witness/NAME]",
    unit="FOLDER",
)
def command(
    name: str,
    logs: tuple[str, ...],
    documents: tuple[str, ...],
    address: Address,
    url: str,
    folder: Path | None,
) -> None:
    """Run a witness until Ctrl-C or SIGTERM. NAME is its own, such as w0.example.net.

    A witness remembers the latest checkpoint of each log that it serves. It cosigns a newer one only with a
    proof that the log has grown by it, and changed nothing. So nobody can show different people different
    lists, not even with the keys of the list and of its log, unless enough witnesses lie.

    How many are enough: with a quorum of q out of w witnesses, a client needs q cosignatures. Two histories
    of a log need q each, so at least 2q - w witnesses must cosign both. 5 of 7 holds while at most 2 lie, and
    goes on while at most 2 are down. 3 of 5 holds while none lies, with 2 down. With 3 of 7 lying, and the
    log's key, two histories are possible: they are found when clients compare what they hold. A lying witness
    alone can do nothing: it can refuse, or cosign what nobody else does.

    Witnesses are worth as much as they are apart: other people, other places, other machines. Run one for a
    friend's list, and ask friends to run one for yours.

    The first run makes the key. Each run prints the line by which a trust document names this witness;
    without --log that is all it does. The log asks it: nothing else needs to reach it. Requests are short and
    bounded, and a request that no log has signed costs next to nothing.

    What --trust names is read again once a minute, so that a log which changes its key goes on being served,
    by the new key alone. Clients go over to a new key once enough witnesses serve it: so give a FILE, and put
    the new trust document in its place. @NAME is the document that this machine knows.

    Never copy the folder of --state, and never go back to a backup of it: a witness that has forgotten what
    it cosigned cosigns a fork. If the folder is lost, make another witness.

    \b
    Examples: a key, and the line for the trust document; then the witness itself
      kcast servers witness w0.example.net
      kcast servers witness w0.example.net --log example.org/lab/log+ab3d9983+ASCCi...
    """
    with errors_as_lines("servers witness"):
        if not is_key_name(name):
            raise ArgumentError("NAME: give a name without spaces and '+', such as w0.example.net")
        keys_given = read_keys("--log", logs)
        served = [*keys_given, *_logs_of(documents)]
        folder = folder or state_root("witness") / keys.file_name(name).removesuffix(".pem")
        with witnesses.opened(folder):
            is_new = not (folder / keys.file_name(name)).exists()
            key = witnesses.key_of(name, folder)
            where = f"http://{format_address(address)}"
            line = f"witness {name} {key.verifier} {url or where}"
            if not served:
                tell(line)
                say(_VERB, "the line is for a trust document; give --log VKEY to run the witness")
                return
            witness = witnesses.Witness(WitnessCore(key, served), folder, lambda text: say(_VERB, text))
            with witnesses.http_server(witness, address) as server:
                tell(line)
                many = count_of(len({log.name for log in served}), "log")
                if is_new:
                    say(_VERB, "its key is new: owners put the line above into their trust documents")
                say(_VERB, f"serving {many} on {where}")
                following = Following(witness, key, keys_given, documents, served)
                _wait_for_a_signal(server.serve_forever, following.look)
                server.shutdown()
            say(_VERB, _summary(witness))


def _logs_of(documents: Iterable[str]) -> list[VerifierKey]:
    found = []
    for given in documents:
        try:
            parsed, _ = document.parse(_document(given))
        except NoteError as error:
            raise ArgumentError(f"--trust: {given}: {error}") from None
        found.append(parsed.policy.log)
    return found


def _document(given: str) -> bytes:
    """Returns the trust document in a file, or of `@NAME`."""
    path: Path | None = Path(given)
    if given.startswith("@"):
        held = Store(given[1:]).load()
        if held is not None:
            return held.trust
        path = dropped(given[1:])
        if path is None:
            text = f"{given} is not known here; give the file, or first: kcast servers trust URL PIN"
            raise ArgumentError(f"--trust: {text}")
    assert path is not None
    with path.open("rb") as opened:
        return opened.read(DOCUMENT_BYTES_MAX + 1)


@dataclass
class Following:
    """The trust documents of a witness that runs: it serves the logs that they name now."""

    witness: Witness
    key: SigningKey
    logs: Sequence[VerifierKey]
    documents: Sequence[str]
    served: list[VerifierKey]
    trouble: str = ""

    def look(self) -> None:
        """Reads the documents; while one cannot be read, all stays as it is, which is told once."""
        try:
            served = [*self.logs, *_logs_of(self.documents)]
            if served != self.served:
                self.witness.serve(WitnessCore(self.key, served))
                self.served = served
                say(_VERB, f"the logs to serve have changed: {', '.join(map(str, served))}")
            self.trouble = ""
        except (KcastError, OSError) as error:
            trouble = str(error)
            if trouble != self.trouble:
                self.trouble = trouble
                say(_VERB, f"{trouble}; going on with the logs as they were")


def _wait_for_a_signal(serve: Callable[[], None], look: Callable[[], None]) -> None:
    ended = Event()

    def look_on() -> None:
        while not ended.wait(_LOOK_INTERVAL_S):
            look()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    for act in (serve, look_on):
        Thread(target=act, name="witness", daemon=True).start()
    sys.stdout.flush()
    ended.wait()


def _summary(witness: Witness) -> str:
    counts = {
        what.name.lower().replace("_", "-") if isinstance(what, Status) else what: count
        for what, count in witness.counts.items()
    }
    parts = [f"cosigned: {counts.pop('cosigned', 0)}"]
    if told := counts.pop("other-size", 0):  # a question that shows what to ask next
        parts.append(f"told what it holds: {told}")
    if counts:
        parts.append(f"refused: {' '.join(f'{what}={count}' for what, count in sorted(counts.items()))}")
    parts += [f"{origin}: {held.size}" for origin, held in sorted(witness.held.items())]
    return "; ".join(parts)
