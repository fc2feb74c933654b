"""What can be wrong with a list of servers, each fault by its name. Sans-IO. PROTOCOL §10.8."""

from enum import StrEnum


class ListFault(StrEnum):
    """Why a list is not taken, or is taken with a warning.

    - `trust`: a trust document is not signed by those who may, or is no document.
    - `bad-signature`: a signature of a known key does not fit what it stands under.
    - `no-quorum`: too few witnesses have cosigned the log's checkpoint.
    - `rollback`: the log, or the list, is older than the one that is held.
    - `fork`: the log shows different people different histories. There is evidence.
    - `unlogged`, `behind`: the list is not in the log; it is not the newest list there.
    - `wrong-name`, `fast-forward`: it is that of another name; its version is absurdly high.
    - `too-big`, `withheld`, `malformed`: it is longer than it may be, is not handed out, or cannot be read.
    - `too-few-signers`: fewer signers than needed have signed it.
    - `early`, `stale`, `expired`, `clock`: it holds later; it should have been replaced; it holds no more;
      the clock here is wrong.
    - `small`, `crowded`, `churn`: it has too few hosts, too many of one network, too many that are new.
    - `apart`: clients with the list before and this one may miss each other on some topics.
    - `unstored`: it cannot be stored here, so that an older one would be taken after a restart.
    - `by-hand`: its trust document names no place to fetch it from.
    - `unsigned`: a file without signatures has the name of a signed list.
    """

    TRUST = "trust"
    BAD_SIGNATURE = "bad-signature"
    NO_QUORUM = "no-quorum"
    ROLLBACK = "rollback"
    FORK = "fork"
    UNLOGGED = "unlogged"
    BEHIND = "behind"
    WRONG_NAME = "wrong-name"
    FAST_FORWARD = "fast-forward"
    TOO_BIG = "too-big"
    WITHHELD = "withheld"
    MALFORMED = "malformed"
    TOO_FEW_SIGNERS = "too-few-signers"
    EARLY = "early"
    STALE = "stale"
    EXPIRED = "expired"
    CLOCK = "clock"
    SMALL = "small"
    CROWDED = "crowded"
    CHURN = "churn"
    APART = "apart"
    UNSTORED = "unstored"
    BY_HAND = "by-hand"
    UNSIGNED = "unsigned"
