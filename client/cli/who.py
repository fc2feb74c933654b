"""`kcast who`: who is there on a topic, and who comes and goes."""

import asyncio
import sys
from typing import Any

import click

from kcast.client.cli.common import Output, cluster_option, errors_as_lines, say
from kcast.client.cli.layers import Opened, opened, proof_options, require_server
from kcast.client.cli.text import escaped, to_json
from kcast.client.driving.aio_service import Members
from kcast.client.layers.members import Member, MemberLeft
from kcast.client.layers.words import fits_presence

READY_S = 5.0


@click.command("who")
@click.argument("topic")
@cluster_option
@click.option(
    "--as", "info", metavar="INFO", help="Be a member, too, until Ctrl-C, and say this of yourself."
)
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C, and print who comes and goes.")
@click.option("--json", "as_json", is_flag=True, help="Print each as a JSON object, one a line.")
@proof_options("the members that count")
def command(
    topic: str, cluster_name: str | None, info: str | None, watch: bool, as_json: bool, **proof: Any
) -> None:
    """Print who is there on TOPIC: members, and the workers that answer requests (kcast reply).

    A line has a member's name, its methods (- for none, . for the unnamed one), what it says of itself, and
    with --from or --seal the key that proves it, with TABs between them. With --watch, + stands before those
    who are there or come, and - before those who go; --as does that, too.

    With --json the keys are event (there, joined, left or silent), name, sender, methods and info.

    The exit code is 0, or 1 if no server answers.

    \b
    Examples: who answers, and being there oneself
      kcast who --cluster lab.cluster calc
      kcast who --cluster lab.cluster room/7 --as ada
    """
    if info is not None and not fits_presence((), info):
        raise click.UsageError("--as: at most 200 bytes fit")
    with errors_as_lines("who"):
        begun = opened("who", topic, cluster_name, proof)
        asyncio.run(_run(begun, info, watch or info is not None, Output(), as_json))
        sys.exit(0)


async def _run(begun: Opened, info: str | None, goes_on: bool, output: Output, as_json: bool) -> None:
    async with begun.client as client:
        members = client.members(begun.topic, info, begun.senders)
        await members.ready(READY_S)
        require_server("who", client)
        try:
            if goes_on:
                await begun.until_first("who", _watch(members, output, as_json), output.outlive())
                return
            if not members.alive:
                say("who", f"nobody is there on {escaped(begun.topic)}")
            for member in sorted(members.alive, key=lambda each: (each.methods, each.name)):
                await output.write(_line(member, "there", as_json))
        finally:
            members.close()
            begun.report_drops("who")


async def _watch(members: Members, output: Output, as_json: bool) -> None:
    async for change in members:
        event = change.why if isinstance(change, MemberLeft) else "joined"
        await output.write(_line(change.member, event, as_json))


def _line(member: Member, event: str, as_json: bool) -> bytes:
    """Returns what to print of a member."""
    if as_json:
        return to_json({"event": event, **member._asdict()}).encode() + b"\n"
    methods = ",".join(method or "." for method in member.methods) or "-"
    shown = "\t".join((member.name, methods, escaped(member.info), member.sender or "")).rstrip("\t")
    sign = {"there": "", "joined": "+ "}.get(event, "- ")
    return f"{sign}{shown}\n".encode()
