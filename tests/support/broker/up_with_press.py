"""`newsstand up` with a press in place of the data cluster: real supervisor, coordinator and brokers, no Spark.

python up_with_press.py APP [the options of `newsstand up`: --data, --base-port, --brokers, --log, --verbose]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from newsstand.cli.servers.platform import run_until_stopped
from newsstand.cluster.app_folder import read_app
from newsstand.errors import NewsstandError
from newsstand.platform.processes import Ports, plan
from newsstand.platform.tables import read_tables

PRESS = Path(__file__).with_name("press.py")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("app", type=Path)
    parser.add_argument("--base-port", type=int, default=0)
    parser.add_argument("--brokers", type=int)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--cluster-command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.cluster_command or [sys.executable, str(PRESS), str(options.app), "{port}"]
    try:
        platform = plan(
            read_app(options.app),
            read_tables(options.app),
            ports=Ports(options.base_port),
            brokers=options.brokers,
            cluster_command=command,
        )
        return run_until_stopped(platform, options.log, as_json=True, verbose=options.verbose)
    except NewsstandError as error:
        print(f"newsstand: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
