"""client/trust/forms/bundle.py: all files of a log that a client needs, in one."""

import pytest

from kcast.client.trust.forms import bundle
from kcast.client.trust.forms.bundle import BundleError, format_bundle, parse

FILES = {
    "trust/1": b"kcast-trust 1\n",
    "latest.tlog-proof": b"\n\n",
    "list/42": bytes(range(256)),
    "from/0": b"",
}


def test_a_bundle_holds_its_files_byte_for_byte() -> None:
    assert parse(format_bundle(FILES)) == FILES
    assert format_bundle({"trust/1": b"a\n"}) == b"kcast-bundle 1\ntrust/1 2\na\n\n"
    assert parse(format_bundle({})) == {}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "expected 'kcast-bundle 1' as the first line"),
        (b"kcast-bundle 2\n", "expected 'kcast-bundle 1' as the first line"),
        (b"kcast-bundle 1\ntrust/1 3\na\n\n", "trust/1: it is not whole"),
        (b"kcast-bundle 1\ntrust/1 1\na\n\n", "expected 'PATH SIZE' for file 2, at byte 27"),
        (b"kcast-bundle 1\ntrust/1 2\na\n", "trust/1: it is not whole"),
        (b"kcast-bundle 1\ntrust/1 02\na\n\n", "expected 'PATH SIZE' for file 1, at byte 15"),
        (b"kcast-bundle 1\n../trust 2\na\n\n", "expected 'PATH SIZE'"),
        (b"kcast-bundle 1\n/trust 2\na\n\n", "expected 'PATH SIZE'"),
        (b"kcast-bundle 1\ntrust//1 2\na\n\n", "expected 'PATH SIZE'"),
        (b"kcast-bundle 1\na 1\na\na 1\na\n", "a: it stands there twice"),
        (b"kcast-bundle 1\n" + b"a" * 200 + b" 1\na\n", "expected 'PATH SIZE'"),
    ],
)
def test_what_is_no_bundle_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(BundleError) as caught:
        parse(data)
    assert complaint in str(caught.value)


def test_a_bundle_has_as_many_files_and_bytes_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    two, three = ({f"f{number}": b"x" for number in range(count)} for count in (2, 3))
    whole, over = format_bundle(two), format_bundle(three)
    monkeypatch.setattr(bundle, "FILES_MAX", 2)
    assert parse(format_bundle(two)) == two
    with pytest.raises(BundleError, match="more than 2 files"):
        parse(over)
    with pytest.raises(ValueError, match="too much for a bundle"):
        format_bundle(three)
    monkeypatch.setattr(bundle, "BUNDLE_BYTES_MAX", len(whole))
    assert parse(format_bundle(two)) == two
    with pytest.raises(BundleError, match=f"longer than {len(whole)} bytes"):
        parse(whole + b"x")
    with pytest.raises(ValueError, match="too much for a bundle"):
        format_bundle({"a": bytes(len(whole))})
