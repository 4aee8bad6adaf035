"""``wicketgate schema``: the JSON Schema of the configuration file, for editors (OPS-68)."""

import json

import click


@click.command("schema")
def schema() -> None:
    """Print the JSON Schema of the configuration file.

    An editor that knows YAML completes and checks the file by it, when the file begins with

    \b
    # yaml-language-server: $schema=wicketgate.schema.json
    """
    click.echo(schema_text(), nl=False)


def schema_text() -> str:
    from wicketgate.config.schema import file_schema

    return json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"
