"""The demo of ``make run``: the shop, the gateway in front of it, and nothing left running after (OPS-16)."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.cli import main as wicketgate

ROOT = Path(__file__).resolve().parent.parent
_STOP_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="port of the gateway on 127.0.0.1")
    port = parser.parse_args().port
    os.chdir(ROOT)
    # Not resolved: the interpreter of a virtual environment is a link, and the servers lie beside the link.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    try:
        with _shop() as url:
            os.environ["SHOP_URL"] = url
            wicketgate(["serve", "--config", "examples/demo.yaml", "--port", str(port)])
    except KeyboardInterrupt:
        sys.exit(130)


@contextmanager
def _shop() -> Iterator[str]:
    """The address of a running shop. It also stops by itself when this process dies, since its stdin then closes."""
    # Its own session: Ctrl-C in the terminal is for the gateway, which still needs the shop to finish.
    shop = subprocess.Popen(
        [sys.executable, "-m", "examples.shop", "--port", "0", "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shop.stdin is not None and shop.stdout is not None
    try:
        line = shop.stdout.readline()
        if not line:
            sys.exit("demo: the shop did not start")
        yield line.split()[-1]
    finally:
        shop.stdin.close()
        shop.terminate()
        with suppress(subprocess.TimeoutExpired):
            shop.wait(_STOP_S)
        shop.kill()
        shop.wait()
        shop.stdout.close()


if __name__ == "__main__":
    main()
