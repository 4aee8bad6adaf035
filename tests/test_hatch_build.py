"""The build moves the service below ``wicketgate/``, makes the page for an index, and fails where that cannot work."""

from pathlib import Path

import pytest

from hatch_build import CannotMove, CannotShow, move_service, page_for_an_index, rewrite
from tests.support.requirement import requirement

MODULES = {"app", "app.main", "app.commands", "app.commands.serve", "routers", "middleware", "middleware.auth"}


@requirement("LIB-20")
@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("from app.main import create_app\n", "from wicketgate.app.main import create_app\n"),
        ("from  app import main\n", "from  wicketgate.app import main\n"),
        ("import app.main as service, os\n", "import wicketgate.app.main as service, os\n"),
        ("import os, app.main as a, routers as r\n", "import os, wicketgate.app.main as a, wicketgate.routers as r\n"),
        (
            "é = 1; from middleware.auth import (\n    A,\n)\n",
            "é = 1; from wicketgate.middleware.auth import (\n    A,\n)\n",
        ),
        ("def f():\n    from app.main import x\n", "def f():\n    from wicketgate.app.main import x\n"),
    ],
)
def test_imports_of_the_service_lead_below_the_package(text: str, moved: str) -> None:
    assert rewrite(text, MODULES, "app/x.py") == moved


@pytest.mark.parametrize(
    "text",
    [
        "from application import x\n",
        "from wicketgate.plugins.middleware import x\n",
        "from . import main\n",
        "app.main.run()\n",
        '"""Named in a docstring: app.main."""\n',
        'x = "app.state", "middleware", "an app", "my.app.main", "/app.main/x"\n',
    ],
)
def test_the_rest_stays_as_it_is(text: str) -> None:
    assert rewrite(text, MODULES, "app/x.py") == text


@requirement("LIB-20")
@pytest.mark.parametrize(
    "text",
    [
        "import app\n",
        "import app.main\n",
        "from \\\n  app.main import x\n",
        'run("app.main:app")\n',
        'x = f"start {y} with uvicorn app.main:app"\n',
        'import_module("app.commands.serve")\n',
        'x = "app.commands.serve.run"\n',
        'x = "python -m app serve"\n',
    ],
)
def test_the_build_fails_where_a_name_would_be_wrong_afterwards(text: str) -> None:
    with pytest.raises(CannotMove, match=r"^app/x\.py:[12]: "):
        rewrite(text, MODULES, "app/x.py")


@requirement("LIB-20")
def test_the_service_can_be_moved(tmp_path: Path) -> None:
    moved = move_service(Path(__file__).parents[1], tmp_path)
    assert tmp_path / "app" / "main.py" in moved
    # The package itself names the service, for create_app.
    assert "from wicketgate.app.main import create_app" in (tmp_path / "__init__.py").read_text("utf-8")


def test_files_that_are_no_code_move_as_they_are_and_compiled_ones_do_not(tmp_path: Path) -> None:
    page = tmp_path / "root" / "app" / "console" / "page.html"
    page.parent.mkdir(parents=True)
    page.write_bytes(b"from app.main import \xff")
    (page.parent / "old.pyc").touch()
    package = tmp_path / "root" / "wicketgate" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    _, moved = move_service(tmp_path / "root", tmp_path / "target")
    assert moved == tmp_path / "target" / "app" / "console" / "page.html"
    assert moved.read_bytes() == page.read_bytes()


@requirement("OPS-120")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("See [docs/guide](docs/guide/README.md).", "See docs/guide."),
        ("[`examples/x.yaml`](examples/x.yaml) is a start", "`examples/x.yaml` is a start"),
        ("[openapi/](openapi)", "openapi/"),
        ("[more](docs/operations/deployment.md#the-image)", "more (docs/operations/deployment.md)"),
        ("[below](#try-it)", "below"),
        ('[the map](docs/house.md "where things are")', "the map (docs/house.md)"),
        ("![The gate](docs/gate.svg)", "The gate"),
        ("[![The gate](docs/gate.svg)](docs/house.md)", "The gate (docs/house.md)"),
        ('<img src="docs/gate.svg" width="700" alt="The gate">', "The gate"),
        ('<a href="docs/house.md">the map</a>', "the map (docs/house.md)"),
        (
            "[a page](https://example.com/a) and <https://example.com>",
            "[a page](https://example.com/a) and <https://example.com>",
        ),
        ("![A picture](https://example.com/a.png)", "![A picture](https://example.com/a.png)"),
        ("[write](mailto:a@example.com)", "[write](mailto:a@example.com)"),
        ("```sh\n[ -e a ](b)\n```\n[c](d)", "```sh\n[ -e a ](b)\n```\nc (d)"),
        ("`f[0](1)` and data[0]", "`f[0](1)` and data[0]"),
    ],
)
def test_the_page_for_an_index_has_no_link_to_a_file(text: str, shown: str) -> None:
    page, line, _ = page_for_an_index(text).partition("\n\n---\n")
    assert page == shown
    assert line


@requirement("OPS-120")
@pytest.mark.parametrize(
    "text", ["[the map][house]\n\n[house]: docs/house.md\n", '<a href="docs/house.md">the map', "<img src='a'\nalt"]
)
def test_the_build_fails_where_a_link_to_a_file_would_be_left(text: str) -> None:
    with pytest.raises(CannotShow, match=r"leads to a file"):
        page_for_an_index(text)
