"""What a subscription may ask to be proven. PROTOCOL §9.6, §9.7."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:  # its libraries are those of an extra
    from kcast.client.sealed.membership import Group


class ProofOptions(TypedDict, total=False):
    """Options of `subscribe` that make it take only what is proven.

    - `senders`: keys, each as the 43 characters that `kcast key show` prints. Only messages that one of them
      has signed are taken. A topic that names its senders (`~HASH/...`) needs none for a single key.
    - `group`: only messages sealed for this group are taken: a `Group`, its name, or its file. By default the
      client's.
    - `seal`: with False, clear text is taken though the client has a group.
    - `plain_topic`: whether the group's topics travel under their own names; False by default.
    - `back_s`, `ahead_s`: how long ago, and how far ahead of this clock, a message may have been sent: 120
      and 30 seconds by default, a day at most.
    """

    senders: Iterable[str]
    group: "Group | str | Path | None"
    seal: bool | None
    plain_topic: bool
    back_s: float
    ahead_s: float
