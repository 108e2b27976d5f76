"""The command `newsstand`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from newsstand.cli import (
    argv,
    broker,
    channel,
    cluster,
    compare,
    coordinator,
    demo,
    log,
    page,
    plan,
    publish,
    push_cache,
    replay,
    reproduce,
    simulate,
    survive,
    token,
    up,
    user,
    workload,
)
from newsstand.errors import BadInput, NewsstandError

app = typer.Typer(
    name="newsstand",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(workload.app, name="workload")
app.add_typer(reproduce.app, name="reproduce")
app.command("simulate")(simulate.simulate)
app.command("replay")(replay.replay)
app.command("plan")(plan.plan)
app.command("survive")(survive.survive)
app.command("push-cache")(push_cache.push_cache)
app.command("policies")(simulate.policies)
app.command("compare")(compare.compare)
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("cluster")(cluster.cluster)
app.command("broker")(broker.broker)
app.command("coordinator")(coordinator.coordinator)
app.command("check")(cluster.check)
app.add_typer(token.app, name="token")
app.add_typer(user.app, name="user")
app.command("publish")(publish.publish)
app.add_typer(page.app, name="page")
app.add_typer(channel.app, name="channel")
app.add_typer(log.app, name="log")


@app.callback()
def about(
    version: Annotated[bool, typer.Option("--version", help="Tell the version and exit.")] = False,
) -> None:
    """Content distribution for publish/subscribe: a data cluster on Spark, and a lab of caches."""
    if version:
        print(f"newsstand {metadata.version('newsstand')}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 if it did what was asked, 2 for bad input, 130 after Ctrl-C."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command; a mistake of the user's is one line on standard error."""
    try:
        code = app(argv.spread(arguments), prog_name="newsstand", standalone_mode=False)
        if code == 130:  # what Typer makes of Ctrl-C
            raise KeyboardInterrupt
    except NewsstandError as error:
        return _complain(str(error), 2 if isinstance(error, BadInput) else 1)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("stopped", 130)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  nobody reads what is still to be printed
        return 141
    except Exception as error:
        if _is_interrupt(error):
            return _complain("stopped", 130)
        if os.environ.get("NEWSSTAND_DEBUG"):
            raise
        explain = getattr(error, "format_message", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)  # the help of the group, as it is
            return 2
        if callable(explain):
            return _complain(str(explain()), getattr(error, "exit_code", 2))
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        # Of a traceback, which is what a Python worker of Spark hands over, the last line tells most.
        line = lines[-1 if any(line.startswith("Traceback") for line in lines) else 0]
        return _complain(f"{type(error).__name__}: {line} (NEWSSTAND_DEBUG=1 shows where)", 1)
    return int(code or 0)


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C came first, and this error only from what it cut off."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__context__))


def _complain(text: str, code: int) -> int:
    line = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split())
    )
    print(f"newsstand: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
