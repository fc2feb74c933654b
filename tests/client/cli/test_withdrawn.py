import pytest

from kcast.client.cli.group import main
from kcast.client.cli.withdrawn import WITHDRAWN


def test_who_uses_a_withdrawn_option_learns_what_does_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    for (command, option), instead in WITHDRAWN.items():
        with pytest.raises(SystemExit) as ended:
            main([*command.split()[1:], option], "kcast")
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert err == f"{command}: the option {option} was withdrawn: {instead} (see {command} --help)\n"
