"""All rows of the attack suite, in the order of docs/reliability.md."""

from tests.attacks.row import Row
from tests.attacks.rows import bounded, budgets, clients, cookies, fairness, floods, servers, strangers

ROWS: tuple[Row, ...] = (
    *fairness.ROWS,
    *floods.ROWS,
    *budgets.ROWS,
    *bounded.ROWS,
    *strangers.ROWS,
    *cookies.ROWS,
    *clients.ROWS,
    *servers.ROWS,
)
