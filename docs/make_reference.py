"""Writes `reference/commands.md` out of the command line itself: `python docs/make_reference.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from newsstand.cli.main import app

PAGE = Path(__file__).parent / "reference" / "commands.md"
HEAD = """\
# Commands

This page is made by `python docs/make_reference.py` from the command line itself. A test fails when it is stale.

`make` installs the command as `.venv/bin/newsstand`.

- **Output.** The result goes to standard output. Notes, progress and errors go to standard error. With `--json`
  standard output holds one JSON value and nothing else.
- **Exit codes.** 0: done. 1: something broke that is not your input (no Java, a failed Spark job). 2: bad input,
  reported in one line. 130: stopped with Ctrl-C. See [errors](errors.md).
- **Several values.** `--policy`, `--capacity`, `--beta` and `--cache-bytes` take several values in any of these
  ways: `--policy lru sr`, `--policy lru,sr`, `--policy lru --policy sr`. `--policy-file` takes several files in
  the first and the last way.
- **Spark.** `--master` and `--conf` are explained in [run on a cluster](../how-to/run-on-a-cluster.md).
- **Apps.** `APP` is a folder with [`newsstand.toml`](app-folder.md).
- **Stack traces.** `NEWSSTAND_DEBUG=1` in the environment shows where an unexpected error came from.
"""

RESULTS = {
    "newsstand simulate": """\
`--json` prints a list with one object per policy, capacity and beta, in the order asked for:

| name | meaning |
|---|---|
| `policy`, `capacity`, `beta` | the run; `capacity` is null with `--cache-bytes` |
| `bytes_per_proxy` | with `--cache-bytes`: the size of the cache of each proxy; otherwise null |
| `cache_bytes` | the bytes of the caches of all proxies together |
| `requests`, `hits`, `hit_ratio` | requests, those found in the cache, and their share |
| `hit_bytes` | the bytes of the pages found |
| `fetched_pages`, `fetched_bytes` | misses, each of which fetches its page once |
| `pushed_pages_always`, `pushed_bytes_always` | pages sent if every matching page is pushed (Always Pushing) |
| `pushed_pages_needed`, `pushed_bytes_needed` | pages sent if a page is pushed only where it will be stored |
| `proxies` | with `--per-proxy`: `{proxy, requests, hits}` of each proxy |
| `proxy_cache_bytes` | with `--per-proxy`: the size of the cache of each proxy, in the order of `proxies` |
| `hours` | with `--hourly`: `{hour, ...}` and all counts of each hour with an event; hour 0 begins at time 0 |

With `--sample` or a sampled `--curve`, all counts but `requests`, `cache_bytes` and `pushed_…_always` are
estimates, and there are two more fields: `sample`, the share of the pages that is replayed, and
`hit_ratio_error`, within which about 9 of 10 hit ratios are.

The push counts are 0 for policies that ignore pushes. Without `--policy` every policy is replayed, without
`--capacity` and `--cache-bytes` the sizes 0.01, 0.05 and 0.1. Both engines give the same results.
""",
    "newsstand replay": """\
`--json` prints a list with one object per policy and cache size, in the order asked for. Times are in milliseconds
and sizes in bytes where the name says no other:

| name | meaning |
|---|---|
| `policy`, `cache_bytes`, `evict`, `expiry` | the run |
| `results`, `orphans` | results, and those of subscriptions that nobody had |
| `ignored_events` | rows that ask for what is so already |
| `hits`, `misses`, `hit_ratio`, `hit_bytes`, `miss_bytes` | results got from the cache, and past it |
| `hits_push`, `misses_push` | of these, the ones that went out as they came |
| `undelivered`, `pending_end` | results left behind by who unsubscribed, and those that wait at the end |
| `vol_bytes`, `fetch_bytes` | what the cluster produced, and what came from it: `vol_bytes + miss_bytes` |
| `lat_e7`, `mean_latency_s` | the latency of all retrieved results in units of 0.1 µs, and the mean in seconds |
| `dropped_…` | `objects` and `bytes` that left the caches by the policy |
| `consumed_…`, `abandoned_…` | the same, got by all; left by the last who waited and unsubscribed |
| `hold_…_ms`, `mean_hold_s`, `mean_hold_dropped_s` | how long those were cached: sums, and means in seconds |
| `left_objects`, `left_bytes` | still cached at the end |
| `size_integral`, `avg_bytes`, `max_bytes` | bytes cached: over time, on average, at most (after a result) |
| `size_integral_warm`, `avg_bytes_warm`, `max_bytes_warm` | the same after the first window |
| `ttl_insert_ms`, `mean_ttl_insert_s` | times to live at insertions: sum, and mean in seconds |
| `sum_rho_T` | at each end of a window, the bytes that equation 5 of the paper expects |

A ratio of nothing is `null`. See [replay broker events](../how-to/replay-broker-events.md).
""",
    "newsstand plan": """\
`--json` prints one object:

| name | meaning |
|---|---|
| `method` | the method |
| `weights` | each topic's share of all requests |
| `possible` | for each topic, how often each node was picked, over all assumed servers (PS) |
| `storages` | the nodes that become storages, in the order chosen |
| `assignment` | for each topic, the storages that keep it, in the order chosen |
| `mean_hops` | between a request and the storage that answers it |
| `traffic` | requests times hops per second |
| `gap` | of `relaxed` and `exact`: the share of the traffic that another plan might spare; 0 if none can |
| `short` | only if replicas found no room: how many of each topic |
| `reassignment` | only with `--from`, see below |
| `brokers` | only with `--coordinator`: the names of the nodes, in order |
| `applied` | only with `--apply`, see below |

`reassignment` is `{before, after, replanned}`, each `{mean_hops, traffic}`, the last with `storages`: with the old
assignment, with the new one, and if storages were chosen again; `gain`, the share of traffic spared, and
`gain_per_copy`; `moved`, for each topic the nodes `added` and `removed`; `copies` and `removals`, their numbers;
`moved_demand`, the share of requests for what is copied; `new_topics`, those kept nowhere before; `worth_it`. See
[plan storages](../how-to/plan-storages.md).

`applied` is `{before, after}`, each `{mean_hops, traffic}` under the demand of the plan, `before` null if some
topic was kept nowhere; `moved`, for each topic that changed place the brokers it went `to` and `from`; `complete`,
the brokers that have all of each topic; `settled`, whether all are where they belong, after `seconds`. If they are
not, the command exits with 1, and topics go on moving. With `--from` it is left out if that is not worth it.
""",
    "newsstand survive": """\
`--json` prints one object, or, if any option is given several values or a range, a list of them:

| name | meaning |
|---|---|
| `brokers`, `slots`, `publish_rate`, `client_rate`, `intensity` | the setting |
| `policy`, `method` | how brokers cache, and how it was computed |
| `target_mst` | only with `--target-mst`: what was asked for; `slots` is the answer |
| `mst` | the mean survival time, to which messages that no broker caches contribute 0 |
| `sd` | the standard deviation of the survival time of messages that were cached at all |
| `p_loss` | the probability that no broker caches a message |
| `quantiles` | of messages that were cached at all, by `0.05`, `0.25`, `0.5`, `0.75` and `0.95` |
| `bounds` | the least and the greatest mean that is possible (Eq. 1 of the paper) |
| `within_bounds` | whether `mst` is between them; if not, the model does not hold for these rates |
| `model` | what answered: `two-dimensional`, `reduced`, `balanced` (an approximation) or `simulation` |
| `observations`, `replications`, `seed` | of `simulate` only: how it was simulated |
| `half_widths` | of `simulate` only, see below |
| `classes` | only with `--class`: `{share, client_rate, intensity, mst, half_width}` of each |

`half_widths` are half of the 95 % intervals of `mst`, `sd`, `p_loss` and each of the `quantiles`, `null` with one
replication. With `--class` there is no `client_rate` and no `intensity` but those of the classes.

With `--master` or `--conf` each model, and each replication of a simulation, is a Spark task. See
[dimension caches](../how-to/dimension-caches.md).
""",
    "newsstand push-cache": """\
`--json` prints one object, or, if any option is given several values or a range, a list of them:

| name | meaning |
|---|---|
| `threshold`, `pages`, `servers`, `caching`, `lookup`, `client_cache`, `slots`, `cap`, `seed` | the setting |
| `traffic` | bytes times hops, of all that was sent: pages, redirects, pushes, checks |
| `primary_traffic`, `primary_requests` | bytes that servers themselves sent, and how often they had to answer |
| `cache_traffic` | bytes that push-caches sent |
| `server_traffic` | the mean of the bytes that a server or an active push-cache sent |
| `origins`, `available`, `active` | servers of the trace; push-caches, and those to which anything was pushed |
| `stored_bytes`, `most_stored_bytes` | what all push-caches hold: in the end, and at most |
| `requests` | all: `client_hits` + `hits` + `checks` + `origin_answers` |
| `hits`, `stale_hits` | answered by a push-cache alone, and those of them with a page that had changed |
| `checks`, `renewals` | answered by one that asked the server first, and those that brought a newer page |
| `origin_answers` | answered by the server |
| `redirects`, `redirected_pages` | answers that sent a client to a push-cache, and pages that they named |
| `invalid` | requests to push-caches that did not have the page any more |
| `pushes`, `pushed_pages`, `pushed_bytes` | what was pushed |
| `client_hits`, `client_stale_hits`, `client_bytes` | answered by an infinite client cache; what all hold |
| `without` | the same without push-caches: four loads, and what is of client caches |
| `uncached` | without any cache: `traffic`, `primary_traffic`, `primary_requests`, `server_traffic` |
| `saved` | the share of each of these four that pushing saves, compared with `without`; below 0 if it costs |

A page costs its size. A redirect, the word that a page is gone, and the word that a copy is still good cost 34
bytes for each page that they are about; to ask costs nothing.
""",
    "newsstand policies": """\
`--json` prints a list of `{name, title, uses_push, offline}`.
""",
    "newsstand compare": """\
`--json` prints `{answers, figure, learned}`: the list that `simulate` prints, the figure's path, the sentences.
""",
    "newsstand workload chen2003": """\
`--json` prints `{out, publications, requests, subscriptions, trace, seed, pages, sq, popularity}`, the three
tables as numbers of rows.
""",
    "newsstand workload bad2018": """\
`--json` prints `{out, events, workload, …, end_ms}`: the number of events, and what `workload.json` says. See
[broker events](trace-format.md#broker-events).
""",
    "newsstand workload push1995": """\
`--json` prints `{out, rows, workload, …, exponent, end}`: the number of rows, `{servers, subnets, pages, versions,
requests}`, and what `workload.json` says: the settings, `exponent`, that of Zipf's law over pages, and `end` in
seconds. See [push traces](trace-format.md#push-traces).
""",
    "newsstand workload push1995-import": """\
`--json` prints `{out, rows, notes}`: the number of rows, `{servers, subnets, pages, requests}`, and what was
passed over. See [logs of servers](../how-to/read-your-traces.md#logs-of-servers-for-push-caching).
""",
    "newsstand workload push1995-report": """\
`--json` prints `{correlation, servers}`: the mean over servers, and an object for each server with requests:

| name | meaning |
|---|---|
| `server`, `name` | its number and name |
| `requests`, `pages`, `subnets` | its requests, how many pages they were for, and from how many subnets |
| `busiest_half_hour`, `busiest_requests` | when it begins, in seconds, and its requests |
| `popular_share` | the share of requests to the most popular pages |
| `correlation` | the mean over the most popular pages |
| `popular` | `{page, requests, correlation}` of each, the most popular first |

The correlation of a page is Pearson's, over all places from which the server was asked, between requests for the
page and for all pages. It is `null` if either is the same everywhere.
""",
    "newsstand workload import": """\
`--json` prints `{out, publications, requests, subscriptions, source, notes}`.
""",
    "newsstand demo": """\
`--json` prints one object: `{seconds, subscribers, subscriptions, brokers, policy}`; the counts `publications`,
`results` (made by the cluster), `notifications`, `received` and `acknowledged` (by subscribers, each once),
`repeated` (came again after a lost connection), `missed` (removed by retention, unread), `hits`, `misses`,
`hit_ratio`, `fetched_bytes` (from the cluster), `pulled_bytes` (of these, before anybody asked), `cached_bytes`;
`troubles` and `last_trouble`; and `latency_ms: {notification, result}`, each `{p50, p99}`: from the cluster's word
to the socket of a subscriber, and from the making of a result to who was online then.
""",
    "newsstand up": """\
When all components are ready it prints a table of component, address, and the file with its token or secret.
`--json` prints `{app, data, secret_file, cluster: {url, token_file}, coordinator: {url}, brokers: [{name, url,
token_file}]}` instead. Then it goes on until it is stopped. See [deploy](../how-to/deploy.md).
""",
    "newsstand cluster": """\
It says where it listens in one line on standard error, and then logs there, one JSON object a line. There is no
result. See [run a data cluster](../how-to/run-a-data-cluster.md).
""",
    "newsstand broker": """\
It says where it listens in one line on standard error, and then logs there, one JSON object a line. There is no
result.
""",
    "newsstand coordinator": """\
It says where it listens in one line on standard error, and then logs there, one JSON object a line. There is no
result. See [run a coordinator](../how-to/run-a-coordinator.md).
""",
    "newsstand check": """\
`--json` prints `{app, datasets, channels, mistakes}`: the type of each field by dataset, that of each column by
channel. If there are mistakes, it prints `{mistakes}` alone, and exits with 2.
""",
    "newsstand token cluster": """\
`--json` prints `{token, name, sha256, scopes}`. The scopes are explained with
[the app folder](app-folder.md#tokens).
""",
    "newsstand token broker": """\
`--json` prints `{token, broker}`. Put the credential into the file of `token_file` of that broker; coordinator and
cluster need the secret alone. [0027](../decisions/0027-keys.md) says what it authorizes.
""",
    "newsstand token operator": """\
`--json` prints `{token, name, scopes, broker, expires}`, the last in Unix seconds. Without `--broker` the token is
for coordinator and cluster, and for a broker without a coordinator whose own secret it is made with. The log names
the holder with every request that is made with the token.
""",
    "newsstand user list": """\
`--json` prints `{subscribers, next}`, as [the coordinator](coordinator-api.md#get-subscribers) answers; `next` is
what to give as `--after` if there are more.

All commands of this group need to know which platform: `--app` for one that `newsstand up` runs on this machine,
`--coordinator`, or `--broker` for a broker without one. The token is that of `--token-file`; with `--secret-file`,
or with `--app` and the secret in its data folder, the command makes one for itself; else it is `NEWSSTAND_TOKEN`.
""",
    "newsstand user show": """\
`--json` prints the account of that name, as [the coordinator](coordinator-api.md#get-subscribersname) answers.
""",
    "newsstand user disable": """\
`--json` prints the account of that name.
""",
    "newsstand user enable": """\
`--json` prints the account of that name.
""",
    "newsstand user delete": """\
`--json` prints `{deleted}`: the name. Without a terminal it needs `--yes`.
""",
    "newsstand user reset": """\
`--json` prints `{name, password}`; the password is null if it was read from standard input. The subscriber should
change a password that was made, with `PUT /subscribers/{name}/password` of a broker.
""",
    "newsstand publish": """\
`--json` prints `{dataset, accepted, repeated, first, last, rejected, rejections}`: records added now, records that
an earlier run had added, the numbers of the first and the last one, how many were rejected, and of the first 1000
of those `{line, reason}`. Rejected records are also reported on standard error, and make the exit code 2.

The address and the token are looked for: `--url`, else `address` in the data folder, else what the app says;
`--token-file`, else `NEWSSTAND_TOKEN`, else `admin.token` in the data folder.
""",
    "newsstand trace": """\
For each channel it prints a table of [stages](../how-to/run-a-data-cluster.md#stages): how many milliseconds
after the request each one ended, first and last if there are several streams, and at a broker the connections
that were signalled and the subscribers that have acknowledged. `unknown` is a time that the cluster or the
broker no longer has, `not yet` what has not happened. `pulled` is `none` at a broker that has signalled
results without pulling them, because it has no result cache (`nc`). A broker that does not answer is named
below the table.
`--json` prints what [the HTTP API](http-api.md#get-datasetsdatasetpublicationsseqtrace) answers. The address
and the token are looked for as for `newsstand publish`.
""",
    "newsstand page put": """\
`--json` prints `{name, id, size, type, modified_ms, changed}`, as [the HTTP API](http-api.md#put-namedname)
answers. See [push pages towards their readers](../how-to/push-pages.md).

The type is that of the file's name, or of the page's name for standard input; `application/octet-stream` if that
tells nothing. The address and the token are looked for as for `newsstand publish`.
""",
    "newsstand page drop": """\
`--json` prints `{dropped}`: the name.
""",
    "newsstand page list": """\
`--json` prints a list with one object a page: `{name, id, size, type, modified_ms}`.
""",
    "newsstand channel list": """\
`--json` prints a list with one object a channel: its name and its table in `newsstand.toml`.
""",
    "newsstand channel try": """\
`--json` prints `{channel, publications, results, by_values, seconds, output, sample, rejected}`: how many
publications were taken, how many results they bring, `{values, results}` for each set of values, the type of each
column, the first 20 results as `{values, publication, payload}`, and how many records of `--file` were rejected.
""",
    "newsstand log verify": """\
The place is the folder of an app, or a data folder.

`--json` prints `data`, `sound`, and `datasets`, a list with one object per dataset:

| name | meaning |
|---|---|
| `dataset`, `records`, `end` | its name, the sound records, the newest number given as far as the log tells |
| `faults` | `{file, begin, end, what, first, last}`: what is wrong in these bytes, and the records that it costs |
| `beyond` | `{by, position}`: channels, and `keyed.sqlite`, that have seen records after `end` |
| `lost_before` | `{first, last}`: records that an earlier repair gave up |

Exit code 0: all is sound; 1: something is not; 2: there is no log in files here.
""",
    "newsstand log repair": """\
The place is the folder of an app, or a data folder.

`--json` prints `data`, `dry_run`, and `repaired`, a list with one object per dataset that was not sound. The same
object is the report that is kept beside the copy:

| name | meaning |
|---|---|
| `dataset`, `at_ms` | its name, and when |
| `lost` | `{first, last, why}`: records that are lost |
| `reserved` | `{first, last, why}`: numbers that are passed over because receipts may have seen them, or null |
| `keys` | `{key, publisher, first, last, remembered, certain}`: idempotency keys of appends that lost records |
| `next` | the number of the next publication |
| `copy` | the folder with the log as it was |

Exit code 0: the log is sound now, or was; 2: a cluster runs there, or there is no log in files here.
""",
    "newsstand channel explain": """\
`--json` prints what [the HTTP API](http-api.md#get-channelschannelexplain) answers. See
[what explain warns of](channel-queries.md#warnings-of-explain).
""",
    "newsstand channel suspended": """\
`--json` prints what the HTTP API answers: [the suspensions](http-api.md#get-channelschannelsuspensions), or how
many were [resumed](http-api.md#delete-channelschannelsuspensions).
""",
    "newsstand channel running": """\
`--json` prints what the HTTP API answers: [the running executions](http-api.md#get-executions).
""",
    "newsstand reproduce chen2003": """\
`--json` prints `{claims, tables, figures, report}`; a claim is `{id, text, paper, measured, holds}`. See
[reproduce chen2003](../how-to/reproduce-chen2003.md).
""",
    "newsstand reproduce bad2018": """\
`--json` prints `{claims, tables, figures, report}`; a claim is `{id, text, paper, measured, holds}`. See
[reproduce bad2018](../how-to/reproduce-bad2018.md).
""",
    "newsstand reproduce push1995": """\
`--json` prints `{claims, tables, figures, report}`; a claim is `{id, text, paper, measured, holds}`, `holds` being
`null` where the seeds do not tell.
""",
    "newsstand reproduce storage2011": """\
`--json` prints `{claims, tables, figures, report}`; a claim is `{id, text, paper, measured, holds}`. See
[reproduce storage2011](../how-to/reproduce-storage2011.md).
""",
    "newsstand reproduce survival2011": """\
`--json` prints `{claims, tables, figures, report}`; a claim is `{id, text, paper, measured, holds}`. See
[reproduce survival2011](../how-to/reproduce-survival2011.md).
""",
}
"""What `--json` prints, by command."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page."""
    root = typer.main.get_command(app)
    return HEAD + "".join(_section(name, command) for name, command in _commands("newsstand", root))


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, subcommand in command.commands.items():
        yield from _commands(f"{name} {word}", subcommand)


def _section(name: str, command: Any) -> str:
    context = typer.Context(command)
    text = "\n\n".join(_paragraph(text) for text in command.help.strip().split("\n\n"))
    rows = "".join(_row(*parameter.get_help_record(context)) for parameter in command.params)
    return (
        f"\n## `{name}`\n\n{text}\n\n| option | default | what it does |\n|---|---|---|\n{rows}\n{RESULTS[name]}"
    )


def _paragraph(text: str) -> str:
    line = " ".join(text.split())
    return f"Example: `{line.removeprefix('Example: ')}`" if line.startswith("Example: ") else line


def _row(option: str, help_text: str) -> str:
    """Return a row of the table, from the output of `--help`."""
    text, _, extra = help_text.removesuffix("]").partition("  [")
    pieces = extra.split("; ")
    known = (piece.removeprefix("default: ") for piece in pieces if piece.startswith("default: "))
    default = "required" if "required" in pieces else next(known, "")
    bounds = "".join(f" ({piece})" for piece in pieces if "<=" in piece or ">=" in piece)
    cells = (f"`{option}`", default, text + bounds)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    main()
