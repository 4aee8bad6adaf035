"""What a stdio server may reach: bubblewrap gives it a file system, namespaces and a network of its own, and a shell
sets its limits (UP-290 to UP-293).

It sees the programs and libraries of the machine, its own program with the Python environment of that, the files that
its command names, and what the operator lists; no other file, and no other process.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC = (
    *("alternatives", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types"),
    *("nsswitch.conf", "passwd", "pki/ca-trust", "pki/tls/certs", "protocols", "resolv.conf", "services"),
    *("ssl/certs", "ssl/openssl.cnf"),
)
_HOME = "/home/server"
_TMP = "/tmp"  # noqa: S108
_TEMPORARY_BYTES = 256 * 2**20
# Processes are -p in a plain shell, and -u in bash.
_LIMITED = (
    'for limit in $1; do name=${limit%%=*}; [ "$name" != p ] || [ -z "${BASH_VERSION:-}" ] || name=u; '
    'ulimit -$name ${limit#*=} || exit 126; done; shift; exec "$@"'
)


class NoSandbox(OSError):
    """Raised if there is no bubblewrap."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """*read* and *write* are paths. *memory* and *file_bytes* are in bytes, of data of one process and of one file;
    *cpu_s* in seconds of one process; *files* are open files of one process, *processes* those in the sandbox. None:
    without a limit."""

    network: bool = False
    read: Sequence[str] = ()
    write: Sequence[str] = ()
    memory: int | None = None
    file_bytes: int | None = None
    cpu_s: int | None = None
    files: int | None = None
    processes: int | None = None

    def around(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> list[str]:
        """Returns the command that runs *command* in the sandbox. Looks at files. Raises NoSandbox, and
        FileNotFoundError for a path that is not there."""
        wrapper = shutil.which("bwrap")
        if wrapper is None:
            raise NoSandbox
        folder = Path(cwd or ".").resolve()
        if not folder.is_dir():
            raise NotADirectoryError(cwd)
        beside = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
        program = shutil.which(command[0], path=env.get("PATH") or os.pathsep.join(beside))
        if program is None:
            raise FileNotFoundError(2, "no such program", command[0])
        given = (*_own_files(program, command), *(each for path in self.read for each in _names(path)))
        read = [*given, *([str(folder)] if cwd is not None else [])]
        written = dict.fromkeys((each for path in self.write for each in _names(path)), "--bind")
        binds = _outermost(dict.fromkeys(read, "--ro-bind") | written)
        is_there = any(folder.is_relative_to(path) for path in binds)
        size = ("--size", str(_TEMPORARY_BYTES))
        own_env = {"TMPDIR": _TMP, "HOME": _HOME}
        return [
            *(wrapper, "--unshare-all", *(["--share-net"] if self.network else [])),
            *("--die-with-parent", "--cap-drop", "ALL", "--disable-userns", "--unshare-user"),
            *("--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
            *(*size, "--tmpfs", _TMP, *size, "--tmpfs", _HOME),
            *(word for name, value in own_env.items() if name not in env for word in ("--setenv", name, value)),
            *(
                word
                for path in (*_SYSTEM, *(f"/etc/{name}" for name in _ETC))
                for word in ("--ro-bind-try", path, path)
            ),
            *(word for path, option in binds.items() for word in (option, path, path)),
            *("--remount-ro", "/", "--chdir", str(folder) if is_there else _HOME, "--"),
            *("/bin/sh", "-c", _LIMITED, "sh", " ".join(self._limits()), program, *command[1:]),
        ]

    def told(self) -> str:
        """Returns what the server may reach, in a line for people."""
        parts = [
            f"network {'all' if self.network else 'none'}",
            *([f"reads {', '.join(self.read)}"] if self.read else []),
            *([f"writes {', '.join(self.write)}"] if self.write else []),
            *self._limits(),
        ]
        return "; ".join(parts)

    def _limits(self) -> Iterator[str]:
        """Yields limits as ``ulimit`` takes them."""
        limits = {"t": self.cpu_s, "n": self.files, "p": self.processes}
        yield from (f"{name}={limit}" for name, limit in limits.items() if limit is not None)
        if self.memory is not None:
            yield f"d={self.memory // 1024}"
        if self.file_bytes is not None:
            yield f"f={self.file_bytes // 512}"


def _names(path: str) -> Iterator[str]:
    """Yields *path* as it is written and where it leads. Raises FileNotFoundError."""
    written = Path(path).expanduser().absolute()
    yield from dict.fromkeys((str(written), str(written.resolve(strict=True))))


def _outermost(binds: Mapping[str, str]) -> dict[str, str]:
    """Returns the paths without those that lie in a folder with the same option, the deeper later, so that it holds."""
    kept: dict[str, str] = {}
    for path in sorted(binds, key=lambda path: path.count("/")):
        above = next((str(each) for each in Path(path).parents if str(each) in kept), None)
        option = (
            kept.get(above)
            if above
            else "--ro-bind"
            if path.startswith(tuple(f"{each}/" for each in _SYSTEM))
            else None
        )
        if option != binds[path]:
            kept[path] = binds[path]
    return kept


def _own_files(program: str, command: Sequence[str]) -> Iterator[str]:
    """Yields the program with what it runs in, and the files and folders that its command names in full."""
    paths = (each for each in command[1:] if each.startswith("/") and os.path.normpath(each).strip("/"))
    named = [each for each in paths if os.path.exists(each)]  # noqa: PTH110 A name may be too long.
    for path in (program, *named):
        yield from _names(path)
    for each in _names(program):
        environment = Path(each).parent.parent
        if (environment / "pyvenv.cfg").exists():
            yield str(environment)
            # The interpreter of an environment lies elsewhere, with its library.
            base = (environment / "bin" / "python").resolve().parent.parent
            yield from (str(base / name) for name in ("bin", "lib") if (base / name).is_dir())
