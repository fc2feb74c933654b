"""Judges whether a newer list may be used. Sans-IO. PROTOCOL §10.7.

`judge` is a generator: it yields what it needs, is sent the answers, and returns a verdict. It makes one
check after another, in the order of §10.7, by a time that is fixed at the start. What fails first is the
fault, and the list that is held stays in use:

    trust documents -> checkpoint: log, witnesses -> history -> record in the log -> version -> bytes
        -> signers -> times -> hosts -> meeting

Nothing is believed for the way by which it came. A file that does not fit what is signed may be a mirror's
fault, and says nothing of the list's owners: it is `withheld`. Two signed statements that contradict each
other are a `fork`; these, and the proof, become evidence.
"""

from dataclasses import dataclass, field, replace

from kcast.client.clusters.cluster import FILE_BYTES_MAX, Cluster, ClusterError, facts_of
from kcast.client.trust.checks import list_checks, log_checks
from kcast.client.trust.checks.asking import Asking, Fault, ask, need
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.list_checks import Clock, duration
from kcast.client.trust.checks.log_checks import Tree
from kcast.client.trust.checks.verdicts import Accepted, Check, Held, Judge, NewTrust, Refused, Trouble
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.document import DOCUMENT_BYTES_MAX, TrustDocument
from kcast.client.trust.forms.note import BadSignature, Note, NoteError
from kcast.client.trust.forms.paths import LATEST, PROOF_BYTES_MAX, list_path, proof_path, trust_path
from kcast.client.trust.forms.record import ListRecord, TrustRecord, is_file_of

DOCUMENTS_MAX = 1024  # new trust documents in one update
VERSIONS_AHEAD_MAX = 10_000
VERSIONS_BACK_MAX = 4  # lists before the newest that are looked at for the one that holds now


def judge(held: Held, now_unix_s: int) -> Judge:
    """Yields steps, and returns the verdict on the newest list of the name that `held` has.

    `now_unix_s` is this machine's time in seconds since 1970.
    """
    judgement = _Judgement(held, now_unix_s)
    try:
        return (yield from judgement.run())
    except Fault as fault:
        failed = Check(judgement.step, fault.text, is_ok=False)
        return Refused(fault.fault, fault.text, fault.evidence, (*judgement.checks, failed))


def shown_tree(held: Held, now_unix_s: int) -> Asking[Tree]:
    """Yields steps, and returns the log's newest tree once it has passed the checks that come before those of
    a list: so a log can be read whose newest list is refused. Raises Fault."""
    _, tree = yield from _Judgement(held, now_unix_s).document_and_tree()
    return tree


@dataclass(slots=True)
class _Judgement:
    held: Held
    now_unix_s: int
    step: str = "trust"
    checks: list[Check] = field(default_factory=list)
    warnings: list[Trouble] = field(default_factory=list)
    _read_already: dict[bytes, tuple[Cluster, Note]] = field(default_factory=dict)

    def run(self) -> Judge:
        document, tree = yield from self.document_and_tree()
        self.step = "list"
        record = yield from log_checks.newest_record(tree)
        self._check_version(record, document, tree)
        data = yield from self._list(record)
        cluster, note = self._read(data, record)
        self._check_signers(note, document, record)
        clock = self._clock(document, tree)
        self._check_times(cluster, document, clock)
        former = self._former(data)
        yield from self._check_hosts(cluster, former, document, tree, clock)
        in_force = yield from self._in_force(cluster, former, document, tree, clock)
        self._check_meeting(cluster, former, clock)
        return Accepted(
            held=Held(
                trust=self.held.trust,
                checkpoint=tree.note.data,
                list=data,
                proof=tree.proof.data,
                list_trust=self.held.trust,
                former=self._still_valid(data, in_force, clock),
            ),
            cluster=in_force,
            upcoming=cluster if in_force is not cluster else None,
            warnings=tuple(self.warnings),
            checks=tuple(self.checks),
        )

    def document_and_tree(self) -> Asking[tuple[TrustDocument, Tree]]:
        """Returns the trust document that holds, and the log's tree, whose history has only grown."""
        following = yield from self._following_documents()
        document, tree = yield from self._document_and_tree(following)
        if (why := documents.why_not_used(document)) is not None:
            self.step = "trust"
            raise Fault(ListFault.TRUST, why)
        self.step = "history"
        self.checks.append((yield from log_checks.check_history(tree, self.held.checkpoint)))
        return document, tree

    def _ok(self, text: str) -> None:
        self.checks.append(Check(self.step, text))

    def _warn(self, trouble: Trouble, step: str = "") -> None:
        self.warnings.append(trouble)
        self.checks.append(Check(step or self.step, trouble.text, is_ok=False))

    def _parsed(self, data: bytes, source: str = "list") -> tuple[Cluster, Note]:
        """Reads a signed list, once. Raises NoteError and ClusterError."""
        if data not in self._read_already:
            self._read_already[data] = list_checks.read_list(data, source)
        return self._read_already[data]

    # --- 1. Trust documents --------------------------------------------------------------------------------

    def _following_documents(self) -> Asking[list[tuple[TrustDocument, bytes]]]:
        """Returns the trust documents that follow the one held, oldest first, and their files."""
        document = documents.parse(self.held.trust)[0]
        found: list[tuple[TrustDocument, bytes]] = []
        while len(found) < DOCUMENTS_MAX:
            path = trust_path(document.version + 1)
            data = yield from ask(path, DOCUMENT_BYTES_MAX)
            if data is None:
                break
            try:
                document = documents.check_next(document, data)
            except NoteError as error:
                raise Fault(
                    ListFault.TRUST, f"{path} may not follow version {document.version}: {error}"
                ) from None
            found.append((document, data))
        return found

    # --- 2 to 5. The log -----------------------------------------------------------------------------------

    def _document_and_tree(
        self, following: list[tuple[TrustDocument, bytes]]
    ) -> Asking[tuple[TrustDocument, Tree]]:
        """Returns the newest trust document that the log shows, and the tree, signed as that document wants.

        A document becomes valid by being public: a publisher writes it before the checkpoint whose tree has
        it, and until then it counts as not there. So does one that is kept out of the log.
        """
        shown = yield from need(LATEST, PROOF_BYTES_MAX)
        held, _ = documents.parse(self.held.trust)
        first_fault: Fault | None = None
        while following:
            document, data = following[-1]
            try:
                tree = log_checks.read_tree(shown, document)
                yield from self._check_is_logged(document, data, tree)
            except Fault as fault:
                first_fault = first_fault or fault
                following = following[:-1]
                continue
            for _, each in following:
                yield NewTrust(each)
            self.held = replace(self.held, trust=data)
            break
        else:
            document = held
            try:
                tree = log_checks.read_tree(shown, document)
            except Fault as fault:
                raise first_fault or fault from None
            if self.held.trust != self.held.list_trust:  # under which a list was accepted has been looked at
                yield from self._check_is_logged(document, self.held.trust, tree)
        self._ok(f"version {document.version}; owners {document.owner_threshold} of {len(document.owners)}")
        self.step = "checkpoint"
        self._ok(self._of_tree(tree, document))
        return document, tree

    def _check_is_logged(self, document: TrustDocument, data: bytes, tree: Tree) -> Asking[None]:
        record = TrustRecord.of(document.name, document.version, data)
        if not (yield from log_checks.has_entry(trust_path(document.version), record.data, tree)):
            raise Fault(ListFault.UNLOGGED, f"trust document {document.version} is not in the public log")

    def _of_tree(self, tree: Tree, document: TrustDocument) -> str:
        text, policy = f"size {tree.checkpoint.size}, signed by the log", document.policy
        if policy.needed:
            age_s = self.now_unix_s - tree.cosigned_unix_s[0]
            age = f"{duration(age_s)} old" if age_s >= 0 else f"{duration(-age_s)} ahead of the clock"
            text += f", cosigned by {len(tree.cosigned_unix_s)} of {len(policy.keys)}"
            text += f" ({policy.needed} needed), newest {age}"
        return text

    # --- 6. Its version ------------------------------------------------------------------------------------

    def _check_version(self, record: ListRecord, document: TrustDocument, tree: Tree) -> None:
        version = record.version
        if record.name != document.name:
            raise Fault(ListFault.WRONG_NAME, f"it is a list of {record.name}, and not of {document.name}")
        if record.trust > document.version:
            raise Fault(
                ListFault.TRUST,
                f"version {version} is signed under trust document {record.trust}, and the newest that is "
                f"handed out is {document.version}",
            )
        if version < document.lists_from:
            raise Fault(
                ListFault.ROLLBACK, f"version {version} is older than the first one, {document.lists_from}"
            )
        if self.held.list is None or self._has_new_count(document):
            return
        held_version = facts_of(self._parsed(self.held.list)[0]).version
        if version < held_version:
            raise Fault(ListFault.ROLLBACK, f"version {version} is older than version {held_version}")
        if version > held_version + VERSIONS_AHEAD_MAX:
            raise Fault(
                ListFault.FAST_FORWARD,
                f"version {version} is more than {VERSIONS_AHEAD_MAX} above version {held_version}",
            )
        if version == held_version and not is_file_of(record, self.held.list):
            raise Fault(
                ListFault.FORK,
                f"there are two lists of version {version}: the one in use and another in the log. Tell the "
                "list's owners, and others who use it",
                {
                    "held.list": self.held.list,
                    "held.tlog-proof": self.held.proof or b"",
                    "shown.tlog-proof": tree.proof.data,
                },
            )

    def _has_new_count(self, document: TrustDocument) -> bool:
        """Whether a new trust document lets versions count from elsewhere: the way out of a version that a
        stolen key has made too high."""
        former, _ = documents.parse(self.held.list_trust or self.held.trust)
        return former.lists_from != document.lists_from

    # --- 7. Its bytes --------------------------------------------------------------------------------------

    def _list(self, record: ListRecord) -> Asking[bytes]:
        """Returns the list of a record: the one that is held, or else exactly as many bytes as it has."""
        held, path = self.held.list, list_path(record.version)
        if held is not None and is_file_of(record, held):
            return held
        if record.size_bytes > FILE_BYTES_MAX:
            raise Fault(
                ListFault.TOO_BIG, f"{path} has {record.size_bytes} bytes, of at most {FILE_BYTES_MAX}"
            )
        data = yield from need(path, record.size_bytes)
        if not is_file_of(record, data):
            raise Fault(ListFault.WITHHELD, f"{path} is not the list that the log has: try another source")
        return data

    def _read(self, data: bytes, record: ListRecord) -> tuple[Cluster, Note]:
        try:
            cluster, note = self._parsed(data, list_path(record.version))
        except (ClusterError, NoteError) as error:
            raise Fault(ListFault.MALFORMED, str(error)) from None
        facts = facts_of(cluster)
        if (cluster.name, facts.version, facts.trust) != (record.name, record.version, record.trust):
            raise Fault(ListFault.MALFORMED, f"list/{record.version} is not what its record in the log says")
        if facts.has_later_salt:
            raise Fault(ListFault.MALFORMED, f"version {record.version} has {list_checks.LATER_SALT}")
        self._ok(
            f"version {record.version}, {record.size_bytes} bytes, SHA-256 {record.sha256[:8]}..., in the log"
        )
        return cluster, note

    # --- 8. Its signers ------------------------------------------------------------------------------------

    def _check_signers(self, note: Note, document: TrustDocument, record: ListRecord) -> None:
        self.step = "signers"
        try:
            signers = document.signers_of(note)
        except BadSignature as error:
            raise Fault(ListFault.BAD_SIGNATURE, f"version {record.version}: {error}") from None
        count, needed = len(signers), document.signer_threshold
        if count < needed:
            text = f"version {record.version} is signed by {count} of the {needed} signers that it takes"
            if record.trust != document.version:
                text += f"; it is from before trust {document.version}"
            raise Fault(ListFault.TOO_FEW_SIGNERS, text)
        names = " ".join(key.name.removeprefix(f"{document.name}/") for key in signers)
        self._ok(f"{names} ({needed} of {len(document.signers)} needed)")

    # --- 9. Its times --------------------------------------------------------------------------------------

    def _clock(self, document: TrustDocument, tree: Tree) -> Clock:
        notes = [tree.note, *([Note.parse(self.held.checkpoint)] if self.held.checkpoint else ())]
        last_two = (self.held.list, *self.held.former[:1])
        seen = list_checks.seen_unix_s(self._parsed(each)[0] for each in last_two if each is not None)
        return Clock(self.now_unix_s, max(log_checks.proven_unix_s(each, document) for each in notes), seen)

    def _check_times(self, cluster: Cluster, document: TrustDocument, clock: Clock) -> None:
        self.step = "times"
        if clock.trouble is not None:
            self._warn(clock.trouble, "clock")
        trouble = list_checks.overdue(cluster, clock)
        if trouble is not None:
            if trouble.fault is ListFault.EXPIRED and document.expiry == "refuse":
                raise Fault(trouble.fault, trouble.text)
            self._warn(trouble)
            return
        facts = facts_of(cluster)
        since_s = clock.at_least_unix_s - facts.valid_after_s
        begin = f"valid since {duration(since_s)}" if since_s >= 0 else f"holds in {duration(-since_s)}"
        self._ok(f"{begin}, fresh for {duration(facts.fresh_until_s - clock.at_least_unix_s)} more")

    # --- 10. Its hosts -------------------------------------------------------------------------------

    def _former(self, data: bytes) -> list[Cluster]:
        """Returns the lists held but for the one that is judged, newest first."""
        held = (self.held.list, *self.held.former)
        return [self._parsed(each)[0] for each in dict.fromkeys(held) if each is not None and each != data]

    def _still_valid(self, data: bytes, in_force: Cluster, clock: Clock) -> tuple[bytes, ...]:
        """Returns the lists before this one that have not expired, newest first: those held, and the one that
        holds until this one does, even if it has."""
        now = [each for each, (cluster, _) in self._read_already.items() if cluster is in_force]
        every = (each for each in (self.held.list, *self.held.former, *now) if each is not None)
        lists = [(each, facts_of(self._parsed(each)[0])) for each in dict.fromkeys(every) if each != data]
        kept = list_checks.kept_former(lists, clock.compared_unix_s)
        return (*(each for each in now if each != data and each not in kept), *kept)

    def _check_hosts(
        self, cluster: Cluster, former: list[Cluster], document: TrustDocument, tree: Tree, clock: Clock
    ) -> Asking[None]:
        self.step = "servers"
        valid = list_checks.kept_former([(each, facts_of(each)) for each in former], clock.compared_unix_s)
        compared = yield from self._compared(cluster, valid, document, tree)
        for trouble in (
            list_checks.too_small(cluster, document),
            list_checks.too_crowded(cluster, document),
            list_checks.too_different(cluster, compared, document),
        ):
            if trouble is not None:
                raise Fault(trouble.fault, trouble.text)
        hosts = cluster.hosts
        needed = max(facts_of(cluster).min_servers, document.floor)
        text = f"{len(hosts)} host{'' if len(hosts) == 1 else 's'} ({needed} needed)"
        if former:
            before = former[0].hosts
            text += f", {len(hosts - before)} added, {len(before - hosts)} removed"
        if former and former[0] not in valid and not self._is_held(cluster):
            why = (
                f"not compared with version {facts_of(former[0]).version}, which has expired: it may be "
                "another list altogether; ask its operators for their pin and servers, and type 'kcast "
                "servers trust URL PIN' and 'kcast servers show'"
            )
            self.warnings.append(Trouble(ListFault.CHURN, f"version {facts_of(cluster).version} was {why}"))
            self.checks.append(Check(self.step, f"{text}; {why}", is_ok=False))
        elif not compared:
            why = ", as its owners say" if valid else " with a valid one before it"
            self.checks.append(Check(self.step, f"{text}; not compared{why}", is_ok=None))
        else:
            self._ok(f"{text} ({document.churn_percent} % allowed)")

    def _compared(
        self, cluster: Cluster, former: list[Cluster], document: TrustDocument, tree: Tree
    ) -> Asking[list[Cluster]]:
        """Returns the lists from which this one may not differ too much: those held, but none from before the
        one that the trust document excepts. Who does not hold that one asks for it."""
        version, excepted = facts_of(cluster).version, document.except_version
        if excepted is None or version < excepted or not former:
            return former
        since = [each for each in former if excepted <= facts_of(each).version <= version]
        if version == excepted or since or self._is_held(cluster):
            return since
        cluster, _ = yield from self._logged_list(excepted, document, tree)
        return [cluster]

    def _is_held(self, cluster: Cluster) -> bool:
        return self.held.list is not None and self._parsed(self.held.list)[0] is cluster

    def _logged_list(self, version: int, document: TrustDocument, tree: Tree) -> Asking[tuple[Cluster, Note]]:
        """Returns an older list, which the log has too.

        Who has signed it is not looked at: its signers may be gone by now, and those of the list that is
        judged vouch for it by building on it.
        """
        path = list_path(version)
        data = yield from need(path, FILE_BYTES_MAX)
        try:
            cluster, note = self._parsed(data, path)
        except (ClusterError, NoteError) as error:
            raise Fault(ListFault.WITHHELD, f"{path}: {error}") from None
        facts = facts_of(cluster)
        if (cluster.name, facts.version) != (document.name, version):
            raise Fault(ListFault.WITHHELD, f"{path} is another list: try another source")
        record = ListRecord.of(document.name, version, facts.trust, data)
        if not (yield from log_checks.has_entry(path, record.data, tree)):
            raise Fault(
                ListFault.UNLOGGED, f"version {version}, on which it builds, is not in the public log"
            )
        return cluster, note

    # --- 11. Meeting ---------------------------------------------------------------------------------------

    def _in_force(
        self, cluster: Cluster, former: list[Cluster], document: TrustDocument, tree: Tree, clock: Clock
    ) -> Asking[Cluster]:
        """Returns the list that holds now: the one judged, or one before it where that holds only later."""
        self.step, now = "times", list_checks.in_force([cluster, *former], clock)
        facts = facts_of(cluster)
        first = max(document.lists_from, facts.version - VERSIONS_BACK_MAX)
        for version in reversed(range(first, facts.version)):  # not each of them needs to have come out
            if now is not None:
                break
            if (yield from ask(proof_path(list_path(version)), PROOF_BYTES_MAX)) is not None:
                before, note = yield from self._logged_list(version, document, tree)
                if self._has_signers(note, document):  # it is to be used, and not to be compared with alone
                    now = list_checks.in_force([before], clock)
        if now is None:
            begins_s = facts.valid_after_s - clock.at_least_unix_s
            raise Fault(
                ListFault.EARLY,
                f"version {facts.version} holds only in {duration(begins_s)}, and none before it is at hand",
            )
        return now

    def _has_signers(self, note: Note, document: TrustDocument) -> bool:
        try:
            return document.has_enough_signers(note)
        except BadSignature:
            return False

    def _check_meeting(self, cluster: Cluster, former: list[Cluster], clock: Clock) -> None:
        self.step = "meeting"
        if not former:
            self.checks.append(Check(self.step, "none before it is held", is_ok=None))
            return
        trouble = list_checks.apart(cluster, former[0], clock)
        if trouble is None:
            self._ok(list_checks.kept(cluster, former[0]))
            return
        self._warn(trouble)
