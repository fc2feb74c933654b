"""`kcast key`: the key with which this user's messages are signed."""

from typing import TYPE_CHECKING

import click

from kcast.client.cli import passphrase
from kcast.client.cli.commands import Commands
from kcast.client.cli.common import complete_keys, errors_as_lines
from kcast.client.cli.own_key import identity_of, identity_or_new
from kcast.client.cli.text import escaped, tell, to_json
from kcast.client.trust.extras import require_trust

if TYPE_CHECKING:
    from kcast.client.sealed.keys import Identity

_name = click.argument("name", required=False, shell_complete=complete_keys)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group("key", cls=Commands)
def command() -> None:
    """Make keys, and show what others need of them.

    A key signs messages, so that subscribers know whose they are, and opens what groups send to their
    members. NAME is the name of a key in the folder kcast/keys of $XDG_CONFIG_HOME, by default ~/.config;
    what contains '/' or '.' is a file. Without a NAME it is the key that the variable KCAST_KEY
    names, else the one called 'key'.

    The passphrase of a key that has one is asked for, or taken from the variable KCAST_KEY_PASSPHRASE.

    \b
    Example:
      kcast key new
      kcast key show
    """


@command.command("new")
@_name
@click.option(
    "--passphrase",
    "is_encrypted",
    is_flag=True,
    help="Encrypt the file, with a passphrase that is asked for.",
)
@_json
def new(name: str | None, is_encrypted: bool, as_json: bool) -> None:
    """Make a key, and show it as 'kcast key show' does.

    Its file is in PKCS#8 (PEM), as openssl reads it, and only you can read it. No file is ever overwritten:
    a key that is lost cannot be had back, so make a copy of it.

    \b
    Examples:
      kcast key new
      kcast key new station --passphrase
      kcast key new ./station.pem
    """
    with errors_as_lines("key new"):
        require_trust("a key")
        from kcast.client.sealed.keys import Identity

        identity = Identity.make(name, ask=_ask_for_new if is_encrypted else None)
        if not as_json:
            tell(f"made {escaped(str(identity.path))}, which only you can read: back it up")
        _show(identity, as_json=as_json)


@command.command("show")
@_name
@_json
def show(name: str | None, as_json: bool) -> None:
    """Show the public half of a key, in each form in which others take it.

    key is what 'kcast sub --from' takes. vkey is the same in signed notes, as of groups and lists of servers.
    ssh is the line of OpenSSH. topic is what topics begin with on which only this key may publish. member is
    the word that 'kcast group add' takes: whoever owns a group adds you with it, and compares with you what
    stands behind short. Where no key is named and there is none, it is made.

    With --json these are the keys, and name and file.

    \b
    Examples:
      kcast key show
      kcast key show station --json
    """
    with errors_as_lines("key show"):
        require_trust("a key")
        _show(identity_or_new("key show", name), as_json=as_json)


@command.command("passphrase")
@_name
def change_passphrase(name: str | None) -> None:
    """Change the passphrase of a key, or give it one.

    The key stays what it is. Its file is written anew, also under the same passphrase, so that a guess costs
    about a second; before 0.5 it cost a millisecond. Copies of the old file keep the old passphrase. Where
    the variable KCAST_KEY_PASSPHRASE is set, it has both the old one and the new one.

    \b
    Example:
      kcast key passphrase station
    """
    with errors_as_lines("key passphrase"):
        require_trust("a key")
        identity = identity_of(name)
        identity.rewrap(_ask_for_new)
        tell(f"{escaped(str(identity.path))} is written anew under that passphrase: back it up")


def _ask_for_new() -> bytes:
    return passphrase.ask("New passphrase", is_new=True)


def _show(identity: "Identity", *, as_json: bool) -> None:
    from kcast.client.sealed.keys import short_form

    fields: dict[str, object] = {
        "name": identity.name,
        "file": str(identity.path),
        "key": identity.key_text,
        "short": short_form(identity.signer.key),
        "vkey": str(identity.note_key.verifier),
        "ssh": identity.ssh_line,
        "topic": identity.topic_start,
        "member": identity.member_word,
    }
    if as_json:
        tell(to_json(fields))
        return
    for label, value in fields.items():
        tell(f"{label:<8}{escaped(str(value))}")
