"""The command `newsstand`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from newsstand.cli import workload
from newsstand.cli.data import channel, log, page, publish
from newsstand.cli.lab import bad2018, compare, plan, push_cache, replay, reproduce, simulate, survive
from newsstand.cli.options import Commands, message_of
from newsstand.cli.servers import platform, server, token, user
from newsstand.cli.several_values import spread
from newsstand.errors import BadInput, NewsstandError

app = Commands(
    name="newsstand",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
reproduce.app.command("bad2018")(bad2018.bad2018)
for group in (workload, reproduce, token, user, page, channel, log):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])
app.command("simulate")(simulate.simulate)
app.command("replay")(replay.replay)
app.command("plan")(plan.plan)
app.command("survive")(survive.survive)
app.command("push-cache")(push_cache.push_cache)
app.command("policies")(simulate.policies)
app.command("compare")(compare.compare)
app.command("demo")(platform.demo)
app.command("up")(platform.up)
app.command("cluster")(server.cluster)
app.command("broker")(server.broker)
app.command("coordinator")(server.coordinator)
app.command("check")(server.check)
app.command("publish")(publish.publish)
app.command("trace")(publish.trace)

EXTRAS = {
    "broker": ("broker", "coordinator", "token", "user"),
    "cluster": ("up", "cluster", "check", "publish", "trace", "page", "channel", "log", "demo"),
    "lab": ("workload", "simulate", "replay", "plan", "survive", "push-cache", "policies", "compare"),
    "all": ("reproduce",),
}
"""The extra of the distribution that holds the dependencies of each command."""


@app.callback()
def about(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Content distribution for publish/subscribe: a data cluster on Spark, and a lab of caches."""
    if version:
        from importlib import metadata

        print(f"newsstand {metadata.version('newsstand')}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 if it did what was asked, 2 for bad input, 130 after Ctrl-C."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command; a mistake of the user's is one line on standard error."""
    try:
        code = app(spread(arguments), prog_name="newsstand", standalone_mode=False)
        if code == 130:  # what Typer makes of Ctrl-C
            raise KeyboardInterrupt
    except NewsstandError as error:
        return _complain(message_of(error), 2 if isinstance(error, BadInput) else 1)
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
        if isinstance(error, ModuleNotFoundError) and (extra := _extra_of(arguments)):
            needed = f"needs the package {error.name}, which is not installed"
            return _complain(f"{extra[0]}: {needed}; run: pip install 'newsstand[{extra[1]}]'", 2)
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


def _extra_of(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return the command among some arguments, and the extra that it needs."""
    command = next((one for one in arguments if not one.startswith("-")), "")
    return next(((command, extra) for extra, commands in EXTRAS.items() if command in commands), None)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C is the cause of an error."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__context__))


def _complain(text: str, code: int) -> int:
    line = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split())
    )
    print(f"newsstand: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
