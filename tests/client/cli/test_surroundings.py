"""What surrounds a command: the files of an editor of Windows, HOME, a proxy, few open files, python -OO."""

import os
import socket
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from kcast.client.cli.protection import keys_of
from kcast.client.clusters import contexts
from kcast.client.sealed.keys import Identity
from kcast.client.trust.publisher.workplace import read_note
from kcast.client.trust.reach.web import WebError, ask
from kcast.client.trust.state.places import state_root
from kcast.pubsub.head_file import read_head
from tests.support.cluster_of_processes import KCAST

WAIT_S = 60


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_byte_order_mark_is_no_part_of_what_somebody_has_written(home: Path) -> None:
    identity = Identity.make("locked", ask=lambda: b"secret")
    assert identity.path is not None
    Path("lab.cluster").write_text("kcast-cluster 1\n")
    contexts.add("lab", "lab.cluster")
    readers: tuple[tuple[Path, bytes, Callable[[], object], object], ...] = (
        (
            Path("keys"),
            identity.key_text.encode() + b"\r\n",
            lambda: keys_of(["./keys"]),
            [identity.key_text],
        ),
        (Path("head"), b"v1\r\n", lambda: read_head("head"), "v1"),
        (Path("draft"), b"kcast-cluster 1\n", lambda: read_note(Path("draft")).text, "kcast-cluster 1\n"),
        (home / ".config/kcast/contexts/lab", b"/x\n", lambda: contexts.meaning("lab"), "/x"),
        (
            identity.path,
            identity.path.read_bytes(),
            lambda: Identity.load("locked", ask=lambda: b"secret").key_text,
            identity.key_text,
        ),
    )
    for path, content, read, meant in readers:
        path.write_bytes(BOM_UTF8 + content)
        assert read() == meant


def test_an_empty_home_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    expected = contexts.config_folder(), state_root()
    monkeypatch.setenv("HOME", "")
    assert (contexts.config_folder(), state_root()) == expected


def test_a_key_may_come_out_of_a_pipe() -> None:
    kept = Identity.make("station")
    assert kept.path is not None
    reading, writing = os.pipe()
    os.write(writing, kept.path.read_bytes())
    os.close(writing)
    found = Identity.load(f"/dev/fd/{reading}")
    os.close(reading)
    assert (found.key_text, found.note_key.verifier.name) == (kept.key_text, "key")


def test_a_proxy_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = f"127.0.0.1:{listener.getsockname()[1]}"

        def refuse_two() -> None:
            for _ in range(2):
                with listener.accept()[0] as asked:
                    asked.recv(4096)
                    asked.sendall(b"HTTP/1.0 502 Bad Gateway\r\n\r\n")

        refusing = Thread(target=refuse_two, daemon=True)
        refusing.start()
        for scheme in ("http", "https"):
            monkeypatch.setenv(f"{scheme}_proxy", f"http://user:word@{proxy}")
        plain = ask("http://list.invalid/x", 9, deadline=monotonic() + WAIT_S, silence_s=WAIT_S)
        assert plain.status == 502 and plain.reason == f"Bad Gateway (through the proxy {proxy})"
        with pytest.raises(WebError, match=f"^https://list.invalid/x: through the proxy {proxy}: .*502"):
            ask("https://list.invalid/x", 9, deadline=monotonic() + WAIT_S, silence_s=WAIT_S)
        refusing.join(WAIT_S)
    with pytest.raises(WebError, match=f"through the proxy {proxy}: Connection refused"):
        ask("https://list.invalid/x", 9, deadline=monotonic() + WAIT_S, silence_s=WAIT_S)


def test_help_needs_no_docstrings() -> None:
    program = "from kcast.client.cli import main; main(['help', '--man', '{}'], standalone_mode=False)"
    for option, folder in (("-O", "kept"), ("-OO", "stripped")):
        subprocess.run((sys.executable, option, "-c", program.format(folder)), check=True, timeout=WAIT_S)
    pages = {path.name: path.read_text() for path in Path("kept").iterdir()}
    assert len(pages) > 50
    assert {path.name: path.read_text() for path in Path("stripped").iterdir()} == pages


def test_few_open_files_are_one_line_of_complaint() -> None:
    for limit, options in ((7, ()), (13, ()), (15, ()), (18, ("--count", "3")), (24, ("--count", "20"))):
        script = f'ulimit -n {limit}; exec "$@"'
        command = ("sh", "-c", script, "sh", *KCAST, "serve", "--port", "0", *options)
        run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert run.returncode == 1
        assert "Traceback" not in run.stderr and "Warning" not in run.stderr, run.stderr
        assert "Too many open files" in run.stderr
