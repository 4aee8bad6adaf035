"""``python -m fuzz.one TARGET FOUND SEEDS SECONDS``: one target under coverage, in a process of its own."""

import sys

import atheris

PER_INPUT_S = 10
MAX_BYTES = 8_192


def main() -> None:
    name, found, seeds, seconds = sys.argv[1:]
    with atheris.instrument_imports(include=["wicketgate", "app"]):
        from fuzz.targets import TARGETS
    options = [f"-max_total_time={seconds}", f"-timeout={PER_INPUT_S}", f"-max_len={MAX_BYTES}", "-print_final_stats=1"]
    atheris.Setup(["fuzz", f"-artifact_prefix={found}/", *options, found, seeds], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
