"""The news workload in memory: the rows that the trace on Spark has, in the same order."""

from __future__ import annotations

import numpy as np

from newsstand.workload.chen2003.publishing import News, publish
from newsstand.workload.chen2003.requests import day_counts_of, draw, pools, servers, subscriptions, units
from newsstand.workload.trace.columns import PublicationColumns, RequestColumns, SubscriptionColumns, TraceColumns


def generate_columns(news: News) -> TraceColumns:
    """Return one trace of the workload."""
    stream = publish(news)
    drawn = [draw(news, stream, unit) for unit in range(units(news))]
    time, page, picks = (np.concatenate(column) for column in zip(*drawn, strict=True))
    pool = pools(day_counts_of(news, time, page).reshape(news.days, news.pages), news.proxies)
    proxy = servers(news, pool, time, page, picks)
    order = np.lexsort((page, time, proxy))
    time, proxy, page = time[order], proxy[order], page[order]
    return TraceColumns(
        source="chen2003",
        requests=RequestColumns(time, proxy, page),
        publications=PublicationColumns(np.arange(news.pages), stream.time, stream.size),
        subscriptions=SubscriptionColumns(*subscriptions(news.seed, news.sq, proxy, page)),
    )
