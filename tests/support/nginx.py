"""A real nginx in front of several gates, as docs/operations/deployment.md wants it."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.support.debian import debian_program
from tests.support.ports import free_port
from tests.support.until import until

_BOUND_S = 30.0

_CONFIG = """
worker_processes 1;
daemon off;
pid nginx.pid;
error_log stderr crit;
{user}
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy;
  fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  client_max_body_size 11m;
  upstream gates {{
    zone gates 64k;
{gates}
  }}
{others}
  map $upstream_addr $others {{
    default gates;
{names}
  }}
  proxy_http_version 1.1;
  proxy_set_header Host $host;
  proxy_set_header Connection "";
  proxy_connect_timeout 1s;
  proxy_read_timeout 120s;
  proxy_buffering off;
  # Without non_idempotent, so that no POST that was sent is sent again.
  proxy_next_upstream error timeout;
  server {{
    listen 127.0.0.1:{port} backlog=512;
    location / {{
      proxy_pass http://gates;
      # A gate that answers 503 has run nothing: another may.
      proxy_intercept_errors on;
      error_page 503 = @others;
    }}
    location @others {{
      proxy_pass http://$others;
    }}
  }}
}}
"""


class Nginx:
    """Started at *port*, or at a free one; a restart keeps it."""

    def __init__(self, folder: Path, gates: Sequence[int]) -> None:
        self._folder = folder
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None
        folder.mkdir(parents=True)
        (folder / "nginx.conf").write_text(configuration(self.port, gates))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "Nginx":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.kill()

    async def start(self) -> None:
        program = await asyncio.to_thread(debian_program, "nginx", "nginx")
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(program.path),
                "-e",
                "stderr",
                "-p",
                str(self._folder),
                "-c",
                str(self._folder / "nginx.conf"),
                env=program.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        await until(self._started, bound_s=_BOUND_S)

    async def kill(self) -> None:
        """End the master and its worker at once; open connections are cut."""
        if self._process is not None:
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            self._process = None

    async def _started(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, (self._folder / "log").read_text()
        return await self._listens()

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


def configuration(port: int, gates: Sequence[int]) -> str:
    """Text of nginx.conf in front of the gates at these ports of the loopback."""

    def servers(ports: Sequence[int]) -> str:
        return "\n".join(f"    server 127.0.0.1:{each} max_fails=0;" for each in ports)

    others = "\n".join(
        f"  upstream others_{own} {{\n    zone others_{own} 64k;\n{servers([one for one in gates if one != own])}\n  }}"
        for own in gates
        if len(gates) > 1
    )
    names = "\n".join(f'    "~:{own}$" others_{own};' for own in gates if len(gates) > 1)
    # Run by root, nginx would give its worker to a user that cannot write here.
    user = "user root;" if os.getuid() == 0 else ""
    return _CONFIG.format(port=port, gates=servers(gates), others=others, names=names, user=user)
