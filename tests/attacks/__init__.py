"""The server and its clients under attack: `python -m tests.attacks`. docs/reliability.md has the table."""
