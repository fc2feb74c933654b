"""`kcast who`: who is there on a topic, and who comes and goes."""

import asyncio
import sys
from typing import Any

import click

from kcast.client.cli.common import Output, cluster_option, errors_as_lines, fail, topic_argument
from kcast.client.cli.layers import Opened, opened, proof_options
from kcast.client.cli.text import escaped, to_json
from kcast.client.layers.members import Member, MemberLeft
from kcast.client.layers.words import fits_presence

READY_S = 5.0


@click.command("who")
@click.argument("topic")
@cluster_option
@click.option("--as", "info", metavar="INFO", help="Be a member, too, and say this of yourself.")
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C, and print who comes and goes.")
@click.option("--json", "as_json", is_flag=True, help="Print each as a JSON object, one a line.")
@proof_options("the members that count")
def command(
    topic: str, cluster_name: str | None, info: str | None, watch: bool, as_json: bool, **proof: Any
) -> None:
    """Print who is there on TOPIC: members, and the workers that answer requests (kcast reply).

    A line has a member's name, its methods (- for none, . for the unnamed one), what it says of itself, and
    with --from or --seal the key that proves it, with TABs between them. With --watch, + stands before those
    who are there or come, and - before those who go.

    With --json the keys are event (there, joined, left or silent), name, methods, info and sender.

    The exit code is 0, or 1 if no server answers.

    \b
    Examples: who answers, and being there oneself
      kcast who --cluster lab.cluster calc
      kcast who --cluster lab.cluster room/7 --as ada
    """
    if info is not None and not fits_presence((), info):
        raise click.UsageError("--as: at most 200 bytes fit")
    with errors_as_lines("who"):
        name = topic_argument(topic)
        begun = opened("who", name, cluster_name, proof)
        printer = _Printer(Output(), as_json, with_sign=watch or info is not None)
        asyncio.run(_run(begun, name, info, watch or info is not None, printer))
        sys.exit(0)


async def _run(begun: Opened, topic: bytes, info: str | None, goes_on: bool, printer: "_Printer") -> None:
    async with begun.client as client:
        members = client.members(topic, info, begun.senders)
        await members.ready(READY_S)
        if not any(state == "alive" for state in client.server_states.values()):
            fail("who", "no server answers; 'kcast doctor' finds out why")
        if not goes_on:
            for member in sorted(members.alive, key=lambda each: (each.methods, each.name)):
                await printer.print(member, "there")
            return
        try:
            async for change in members:
                await printer.print(change.member, change.why if isinstance(change, MemberLeft) else "joined")
        finally:
            members.close()


class _Printer:
    """Prints members, and what became of them."""

    def __init__(self, output: Output, as_json: bool, *, with_sign: bool) -> None:
        self._output, self._as_json, self._with_sign = output, as_json, with_sign

    async def print(self, member: Member, event: str) -> None:
        """Prints a member."""
        if self._as_json:
            fields = {"event": event, "name": member.name, "methods": [*member.methods], "info": member.info}
            line = to_json(fields | {"sender": member.sender})
        else:
            methods = ",".join(method or "." for method in member.methods) or "-"
            words = [member.name, methods, escaped(member.info), *([member.sender] if member.sender else [])]
            sign = "" if not self._with_sign else "+ " if event == "joined" else "- "
            line = sign + "\t".join(words).rstrip("\t")
        await self._output.write(line.encode() + b"\n")
