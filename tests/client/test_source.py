"""One rule: the option, the variable and `Client(...)` name a cluster in the same way."""

from pathlib import Path

import pytest

from kcast.client.cluster import ClusterError, format_cluster, lab
from kcast.client.clusters import contexts
from kcast.client.source import CLUSTER_VARIABLE, FileSource, SignedSource, find, given
from kcast.client.trust.state.places import folder_of

CLUSTER = lab([("127.0.0.1", 9)], name="here")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a cluster file `lab.txt` and an own configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("lab.txt").write_text(format_cluster(CLUSTER))
    return tmp_path


def found(name: str | Path | None = None) -> tuple[Path, str]:
    source = find(name)
    assert isinstance(source, FileSource)
    return source.path, source.name


def test_what_looks_like_a_path_or_is_there_is_a_file(folder: Path) -> None:
    Path("prod").write_text("")
    contexts.add("prod", "/p")
    contexts.add("only", "/o")
    for name in ("lab.txt", "prod", "gone.txt", "sub/only", "./only", "/only"):
        assert found(name) == (folder / name, name)
    assert found(Path("only")) == (folder / "only", "only"), "a Path is always a file"
    assert found("only") == (Path("/o"), "context only: /o")
    with pytest.raises(ClusterError, match="no such file"):
        find("x" * 300)


def test_argument_before_variable_before_context_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(None) is None
    contexts.add("prod", "/p")
    contexts.add("live", "/l")
    contexts.use("prod")
    assert found() == (Path("/p"), "the context in use: context prod: /p")
    monkeypatch.setenv(CLUSTER_VARIABLE, "live")
    assert found() == (Path("/l"), "KCAST_CLUSTER: context live: /l")
    assert found("./x")[1] == "./x"
    assert found("prod")[1] == "context prod: /p"
    monkeypatch.setenv(CLUSTER_VARIABLE, "")
    assert found()[0] == Path("/p"), "an empty variable is none"


@pytest.mark.parametrize("by", ["argument", "variable", "context", "context in use"])
def test_a_name_with_an_at_sign_is_a_signed_list(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nacl")
    contexts.add("prod", "@example.org/prod")
    name: str | None = {"argument": "@example.org/prod", "context": "prod"}.get(by)
    if by == "variable":
        monkeypatch.setenv(CLUSTER_VARIABLE, "@example.org/prod")
    if by == "context in use":
        contexts.use("prod")
    assert isinstance(find(name), SignedSource)
    with pytest.raises(
        ClusterError, match=r"@example\.org/prod is not known here: type 'kcast servers trust URL"
    ):
        given(name)


FACTS = "version 1\ntrust 1\nvalid-after 1\nfresh-until 1\nvalid-until 1\nmin-servers 1\n"
UNSIGNED = "kcast-cluster 1\nname example.org/lab\nserver 192.0.2.1:1\n"


def know(name: str) -> None:
    folder = folder_of(name)
    folder.mkdir(parents=True)
    (folder / "current").symlink_to("1.1")


def test_a_signed_list_is_not_used_by_its_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    Path("lab.cluster").write_text(UNSIGNED + FACTS + "\n\N{EM DASH} example.org/lab/signer-0 AAAA\n")
    told = "lab.cluster: it is a signed list: use --cluster @example.org/lab"
    with pytest.raises(ClusterError) as unknown:
        given("lab.cluster")
    assert str(unknown.value) == f"{told}, after 'kcast servers trust URL PIN'"
    know("example.org/lab")
    with pytest.raises(ClusterError) as known:
        given("lab.cluster")
    assert str(known.value) == told


def test_a_known_name_is_not_read_unsigned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    Path("lab.cluster").write_text(UNSIGNED)
    assert given("lab.cluster").name == "example.org/lab", "nobody here knows it as signed"
    know("example.org/lab")
    with pytest.raises(
        ClusterError, match=r"it is not signed, .* \(unsigned\): use --cluster @example.org/lab$"
    ):
        given("lab.cluster")
    Path("lab.cluster").write_text(UNSIGNED.replace("name example.org/lab\n", ""))
    assert given("lab.cluster").name == ""


def test_an_unknown_name_is_told_with_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError) as none:
        find("prod")
    assert str(none.value) == (
        "prod: no such file, and no such context ('kcast context add NAME FILE' makes one)"
    )
    contexts.add("prod", "/p")
    contexts.add("lab", "/l")
    with pytest.raises(ClusterError) as meant:
        find("prd")
    assert str(meant.value) == (
        "prd: no such file, and no such context; did you mean prod? There are: lab, prod"
    )
    monkeypatch.setenv(CLUSTER_VARIABLE, "xyz")
    with pytest.raises(ClusterError) as other:
        find(None)
    assert str(other.value) == ("KCAST_CLUSTER: xyz: no such file, and no such context. There are: lab, prod")


def test_complaints_about_a_file_say_what_led_to_it(folder: Path) -> None:
    contexts.add("prod", "prod.txt")
    with pytest.raises(ClusterError, match=rf"^context prod: {folder}/prod\.txt: No such file or directory$"):
        given("prod")
    Path("prod.txt").write_text("kcast-cluster 1\nsever\n")
    with pytest.raises(ClusterError, match=rf"^context prod: {folder}/prod\.txt:2: expected one of"):
        given("prod")


def test_nothing_given_and_an_empty_name_are_told() -> None:
    with pytest.raises(
        ClusterError, match="no cluster is given: give the path of a cluster file or a context"
    ):
        given(None)
    with pytest.raises(ClusterError, match="the cluster's name is empty"):
        given("")


def test_a_cluster_is_itself() -> None:
    assert given(CLUSTER) is CLUSTER
    assert given("lab.txt") == given(Path("lab.txt")) == CLUSTER
