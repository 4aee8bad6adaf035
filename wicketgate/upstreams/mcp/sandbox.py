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
    *("alternatives", "ca-certificates", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mime.types", "nsswitch.conf", "passwd", "pki", "protocols", "resolv.conf", "services", "ssl"),
)
_HOME = "/home/server"
_TMP = "/tmp"  # noqa: S108
_TEMPORARY_BYTES = 256 * 2**20
_LIMITED = 'for limit in $1; do ulimit -${limit%%=*} ${limit#*=} || exit 126; done; shift; exec "$@"'


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
        folder = str(Path(cwd or ".").resolve())
        read = [str(Path(each).expanduser().resolve(strict=True)) for each in self.read]
        write = [str(Path(each).expanduser().resolve(strict=True)) for each in self.write]
        if cwd is not None:
            read.append(folder)
        is_there = any(Path(folder).is_relative_to(each) for each in (*read, *write))
        path = env.get("PATH") or os.pathsep.join(
            [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
        )
        program = shutil.which(command[0], path=path) or command[0]
        size = ("--size", str(_TEMPORARY_BYTES))
        return [
            *(wrapper, "--unshare-all", *(["--share-net"] if self.network else [])),
            *("--die-with-parent", "--cap-drop", "ALL", "--disable-userns", "--unshare-user"),
            *("--proc", "/proc", "--dev", "/dev"),
            *(*size, "--tmpfs", _TMP, "--setenv", "TMPDIR", _TMP),
            *(*size, "--tmpfs", _HOME, "--setenv", "HOME", _HOME),
            *_bound("--ro-bind-try", [*_SYSTEM, *(f"/etc/{name}" for name in _ETC)]),
            *_bound("--ro-bind", [*_own_files(program, command), *read]),
            *_bound("--bind", write),
            *("--chdir", folder if is_there else _HOME, "--"),
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


def _bound(option: str, paths: Sequence[str]) -> Iterator[str]:
    for path in dict.fromkeys(paths):
        yield from (option, path, path)


def _own_files(program: str, command: Sequence[str]) -> Iterator[str]:
    """Yields the program with what it runs in, and the files and folders that its command names in full."""
    named = [each for each in command[1:] if each.startswith("/") and Path(each).exists()]
    for path in (program, *named):
        if Path(path).exists():
            yield str(Path(path).absolute())
            yield str(Path(path).resolve())
    environment = Path(program).absolute().parent.parent
    if (environment / "pyvenv.cfg").exists():
        yield str(environment)
        # The interpreter of an environment lies elsewhere, with its library.
        yield str((environment / "bin" / "python").resolve().parent.parent)
