"""Queries of channels over a city: the seven of Table III, and others that Spark plans differently."""

from __future__ import annotations

import re

from newsstand.cluster.query.parser import Body, parse_body
from newsstand.model import ChannelDefinition, Dataset, Field, Parameter

PLACE = (Field("lat", "double"), Field("lon", "double"))
DATASETS = {
    "emergencies": Dataset(
        "emergencies",
        (
            Field("id", "string"),
            Field("kind", "string"),
            Field("text", "string", True),
            *PLACE,
            Field("tags", "array<string>"),
        ),
    ),
    "shelters": Dataset("shelters", (Field("name", "string"), *PLACE), "name"),
    "users": Dataset("users", (Field("name", "string"), *PLACE), "name"),
}
PARAMETERS = {"kind": "string", "lat": "double", "lon": "double", "user": "string", "r": "double"}
KINDS = ["flood", "fire", "quake", "' OR '1'='1"]

TABLE_III = {
    "emrgn(E)": "SELECT * FROM emergencies WHERE kind = :kind",
    "emrgn(L)": "SELECT e.id, e.text FROM emergencies e WHERE distance_km(e.lat, e.lon, :lat, :lon) < 9",
    "emrgn(E,L)": "SELECT e.id FROM emergencies e "
    "WHERE e.kind = :kind AND 9 >= distance_km(:lat, :lon, e.lat, e.lon)",
    "emrgn-ws(E,L)": "SELECT e.id, s.name AS shelter FROM emergencies e "
    "JOIN shelters s ON distance_km(e.lat, e.lon, s.lat, s.lon) < 10 "
    "WHERE e.kind = :kind AND distance_km(e.lat, e.lon, :lat, :lon) < 9",
    "emrgn-nm(U)": "SELECT e.id, u.lat FROM emergencies e "
    "JOIN users u ON distance_km(e.lat, e.lon, u.lat, u.lon) < 9 WHERE u.name = :user",
    "emrgn-nm(E,U)": "SELECT e.id FROM emergencies e, users u WHERE distance_km(e.lat, e.lon, u.lat, u.lon) < 9 "
    "AND u.name = :user AND e.kind = :kind",
    "emrgn-nm-ws(E,U)": "SELECT e.id, s.name FROM emergencies e "
    "JOIN shelters s ON distance_km(e.lat, e.lon, s.lat, s.lon) < 5 "
    "JOIN users u ON distance_km(e.lat, e.lon, u.lat, u.lon) < 9 WHERE u.name = :user AND e.kind = :kind",
}
"""The seven channels of Uddin & Venkatasubramanian 2018, Table III: kinds E, places L, users U."""

OTHERS = {
    "radius as a parameter": "SELECT id FROM emergencies grid "
    "WHERE distance_km(grid.lat, grid.lon, :lat, :lon) <= :r",
    "groups": "SELECT kind, count(*) AS n, max(:lat) AS m FROM emergencies e WHERE kind = :kind GROUP BY kind "
    "HAVING count(*) > 1",
    "groups by number": "SELECT kind, lat > :lat AS north, count(*) AS n FROM emergencies GROUP BY 1, 2 "
    "ORDER BY count(*) DESC, 1",
    "one row always": "SELECT count(*) AS n FROM emergencies WHERE kind = :kind",
    "first two": "SELECT id, row_number() OVER (ORDER BY lat, id) AS w FROM emergencies WHERE kind = :kind "
    "ORDER BY lat DESC, id LIMIT 2",
    "order by a name with a space": "SELECT id AS `the id`, lat FROM emergencies WHERE kind = :kind "
    "ORDER BY `the id` DESC LIMIT 2",
    "distinct": "SELECT DISTINCT kind FROM emergencies WHERE kind = :kind ORDER BY kind",
    "union": "SELECT id, 'k' AS why FROM emergencies WHERE kind = :kind UNION ALL "
    "SELECT id, 'l' FROM emergencies WHERE distance_km(lat, lon, :lat, :lon) < 9 ORDER BY why, 1 LIMIT 3 OFFSET 1",
    "except": "SELECT id FROM emergencies WHERE kind = :kind "
    "EXCEPT SELECT id FROM stored.emergencies WHERE lat > :lat",
    "with": "WITH near AS (SELECT id, kind FROM emergencies WHERE distance_km(lat, lon, :lat, :lon) < 20), "
    "k AS (SELECT DISTINCT kind FROM stored.emergencies) "
    "SELECT near.id, k.kind FROM near JOIN k ON near.kind = k.kind",
    "inner query": "SELECT x.id, x.n FROM (SELECT id, kind, lat * 2 AS n FROM emergencies) x WHERE x.kind = :kind",
    "exists": "SELECT e.id FROM emergencies e WHERE e.kind = :kind AND EXISTS "
    "(SELECT 1 FROM shelters s WHERE distance_km(e.lat, e.lon, s.lat, s.lon) < 6 AND s.name < :user)",
    "scalar": "SELECT id, (SELECT count(*) FROM stored.emergencies o WHERE o.kind = e.kind) AS n "
    "FROM emergencies e WHERE kind = :kind",
    "left": "SELECT e.id, s.name FROM emergencies e LEFT JOIN shelters s "
    "ON distance_km(e.lat, e.lon, s.lat, s.lon) < 4 AND s.name <> :user WHERE e.kind = :kind",
    "right": "SELECT e.id, u.name FROM users u RIGHT JOIN emergencies e ON u.name = e.id AND u.name = :user "
    "WHERE e.kind = :kind",
    "anti": "SELECT e.id FROM emergencies e LEFT ANTI JOIN users u "
    "ON distance_km(u.lat, u.lon, e.lat, e.lon) < 3 AND u.name = :user",
    "using": "SELECT e.id, s.lat FROM emergencies e JOIN stored.emergencies s USING (kind) WHERE kind = :kind",
    "tags": "SELECT e.id, t.tag FROM emergencies e LATERAL VIEW explode(e.tags) t AS tag WHERE t.tag = :kind",
    "range": "SELECT id, lat FROM emergencies WHERE lat > :lat",
    "functions": "SELECT id, coalesce(text, 'it''s') AS t, transform(tags, x -> upper(x)) AS u, :lat + 1 AS q, "
    "_page.id AS p, _at, text FROM emergencies WHERE kind IN (:kind, 'fire')",
}
QUERIES = TABLE_III | OTHERS


def body_of(query: str) -> Body:
    used = [name for name in PARAMETERS if re.search(rf":{name}\b", query)]
    channel = ChannelDefinition(
        "c", query, "emergencies", tuple(Parameter(name, PARAMETERS[name]) for name in used)
    )
    return parse_body(channel, DATASETS)


EMERGENCIES = """
[datasets.emergencies]
fields = {id = "string", kind = "string"}

[datasets.shelters]
fields = {name = "string"}
key = "name"

[channels.by_kind]
query = "SELECT e.id FROM emergencies e WHERE e.kind = :kind"
new = "emergencies"
parameters = {kind = "string"}
"""
