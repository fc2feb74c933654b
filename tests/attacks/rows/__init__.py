"""All rows of the attack suite, in the order of docs/reliability.md."""

from tests.attacks.row import Row
from tests.attacks.rows import floods

ROWS: tuple[Row, ...] = (*floods.ROWS,)
