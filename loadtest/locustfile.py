"""The locustfile: load tests of a kcast cluster with locust.

    locust -f loadtest/locustfile.py --cluster lab.txt                        # web UI
    locust -f loadtest/locustfile.py --cluster lab.txt --headless -u 24 -r 24 -t 30s --csv out --html out.html
    locust -f loadtest/locustfile.py --cluster lab.txt --headless -u 6 -t 30s --processes 2 Mixed

`locust --help` does not show the options that this file adds. `kcast load --help` explains most of them.
Those that one changes from test to test are in locust's web UI, too. Your own locustfile may import from
here, and derive users.
"""

from kcast.loadtest.users.locust_hooks import register
from kcast.loadtest.users.locust_users import Mixed, Publisher, Subscriber

__all__ = ["Mixed", "Publisher", "Subscriber"]

register()
