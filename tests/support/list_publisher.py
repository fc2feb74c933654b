"""A publisher of a signed list, with keys from fixed seeds and a time of the test's own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcast.client import cluster as clusters
from kcast.client.cluster import Cluster
from kcast.client.trust.forms.document import TrustDocument, pin_of
from kcast.client.trust.forms.note import Note, SigningKey, VerifierKey
from kcast.client.trust.publisher import cosigning
from kcast.client.trust.publisher.drafts import at_hand
from kcast.client.trust.publisher.editing import Lifetime, entries, next_draft
from kcast.client.trust.publisher.founding import Terms, first_document, first_list, spread_for
from kcast.client.trust.publisher.publishing import Publication, publish
from kcast.client.trust.publisher.signing import signed
from kcast.client.trust.publisher.workplace import Workplace, read_note, write_note

NAME = "example.org/lab"
NOW_S = 1_800_000_000
HOSTS = tuple(f"192.0.2.{number}:7400" for number in range(1, 9))


def key(role: str, number: int = 0) -> SigningKey:
    """Returns a key that is the same in each run."""
    return SigningKey.from_seed(f"{NAME}/{role}", f"{role} {number}".encode().ljust(32))


class ListPublisher:
    """Publishes into a folder. `ring` are the keys at hand."""

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[str] = HOSTS,
        signers: int = 1,
        churn_percent: int = 0,
        **terms: Any,
    ) -> None:
        self.place = Workplace(folder / "lab.cluster")
        self.signers = [key(f"signer-{number}") for number in range(signers)]
        self.log = key("log")
        self.ring = [*self.signers, self.log]
        self.now_s = NOW_S
        self.collect: Any = cosigning.collect
        servers, is_lab = entries(hosts)
        self.document: TrustDocument = first_document(
            NAME,
            Terms(signers=tuple(each.verifier for each in self.signers), log=self.log.verifier, **terms),
            servers,
        )
        if churn_percent:
            self.document = replace(self.document, churn_percent=churn_percent)
        start = Cluster(servers, spread_for(servers), salt=b"salt of the list", is_lab=is_lab)
        write_note(self.place.trust_file, Note(self.document.text))
        write_note(
            self.place.file,
            Note(clusters.format_cluster(first_list(NAME, start, Lifetime(), self.now_s))),
        )

    @property
    def pin(self) -> str:
        """The pin of the first trust document."""
        return pin_of(self.document.text)

    def secret(self, public: VerifierKey) -> SigningKey | None:
        """Returns the secret key of a public one, if it is at hand."""
        return next((each for each in self.ring if each.verifier == public), None)

    def publish(self, **options: Any) -> Publication:
        """Publishes what the work files have become."""
        return publish(
            self.place,
            self.secret,
            lambda name: self.place.file.parent / "log.checkpoint",
            self.now_s,
            collect=self.collect,
            **options,
        )

    def rotate(self, document: TrustDocument) -> None:
        """Writes the next trust document, signed with the keys at hand, as `kcast servers rotate` does."""
        owners = (*self.document.owners, *document.owners)
        write_note(self.place.trust_file, signed(Note(document.text), at_hand(owners, self.secret)))

    def work(self) -> Cluster:
        """Returns the list in the work file."""
        return clusters.parse(read_note(self.place.file).data.decode())

    def edit(self, cluster: Cluster) -> None:
        """Writes the work file, as `add` and `remove` do."""
        is_signed = bool(read_note(self.place.file).signatures)
        write_note(self.place.file, Note(clusters.format_cluster(next_draft(cluster, is_signed=is_signed))))

    def files(self) -> dict[str, bytes]:
        """Returns all files that a web server would serve, by path."""
        served = self.place.served
        return {
            path.relative_to(served).as_posix(): path.read_bytes()
            for path in sorted(served.rglob("*"))
            if path.is_file()
        }
