from pathlib import Path

from bench.checkouts import HERE
from bench.start import first_client, imports_ms, keyed, pauses_ms, start
from tests.support.requirement import requirement


@requirement("OPS-375")
def test_a_start_is_measured_from_the_process_itself(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    config.write_text("upstreams: []\n")
    found = start(HERE, config, {})
    assert 0 < found.listening_cpu <= found.ready_cpu
    assert 0 < found.listening <= found.ready
    assert 0 < found.proportional <= found.resident
    longest, overslept = pauses_ms(HERE, config, {})
    assert longest > 0
    assert overslept >= 0


@requirement("OPS-375")
def test_the_first_client_of_mcp_is_measured(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    config.write_text(f"{keyed()}upstreams: []\n")
    found = first_client(HERE, config, {})
    assert min(found.cpu_ms, found.took_ms, found.pause_ms, found.resident) > 0


@requirement("OPS-375")
def test_what_is_imported_before_listening_is_counted_by_package() -> None:
    found = imports_ms(HERE)
    assert "fastapi" in found
    assert "mcp" not in found
