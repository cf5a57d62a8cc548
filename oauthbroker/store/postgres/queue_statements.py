"""The statements of queues in rows. Each is a transaction.

An enqueue locks its address until the transaction ends, and takes its place after that, so that the places of an
address become visible in their order. A claim takes the oldest free head of an address, and skips one that is being
changed. To find where it stands it looks from the oldest event on, and at the heads of all addresses meanwhile: the one
is long where many events wait behind a head that is not free, the other where there are many addresses.
"""

from __future__ import annotations

from typing import Final

_NOW = "coalesce(%(now)s::timestamptz, clock_timestamp())"
_GATE = "pg_advisory_xact_lock(('x' || encode(substr({}, 1, 8), 'hex'))::bit(64)::bigint)"
_TELL = "pg_notify('oauthbroker', 'queue') is not null"
_MINE = "agent = %(agent)s and id = %(id)s"
_LEASED = f"{_MINE} and state = 'waiting' and lease = %(lease)s"
_FOLLOWED = f"""
select exists (
    select from oauthbroker.queued as next
    where next.agent = over.agent and next.address = over.address and next.state = 'waiting' and next.id <> over.id
) and {_TELL}, over.state from over
"""
_FREE = f"(first.due is null or first.due <= {_NOW})"
_IS_HEAD = """not exists (
    select from oauthbroker.queued as earlier where earlier.agent = first.agent
    and earlier.address = first.address and earlier.state = 'waiting' and earlier.place < first.place
)"""
_WAITING = "from oauthbroker.queued as first where first.agent = %(agent)s and first.state = 'waiting'"
_OLDEST_FREE = f"""recursive look as (
    select 1 as many, 0::bigint as place, null::bigint as free, '\\x'::bytea as address, null::bigint as head
    union all
    select least(look.many * 2, 32), step.place, step.free, top.address, least(look.head, top.free)
    from look cross join lateral (
        select max(place) as place, min(place) filter (where is_free) as free from (
            select first.place, {_FREE} and {_IS_HEAD} as is_free {_WAITING} and first.place > look.place
            order by first.place limit look.many
        ) as batch
    ) as step left join lateral (
        select first.address, case when {_FREE} then first.place end as free {_WAITING}
        and first.address > look.address order by first.address, first.place limit 1
    ) as top on true
    where look.free is null and look.place is not null and look.address is not null
), oldest as (
    select coalesce(max(free), max(head) filter (where address is null)) as place from look
)"""
STATEMENTS: Final = {
    "entries": "select max(version) from oauthbroker.entry where kind = 'events'",
    "unread entries": """
with gone as (
    delete from oauthbroker.entry where kind = 'events' and version <= %(version)s returning kind, name, record
)
insert into oauthbroker.set_aside (kind, name, record) select kind, name, record from gone""",
    "enqueue": f"""
with gate as materialized (select {_GATE.format("%(address)s::bytea")}
    from oauthbroker.keyring where epoch = %(epoch)s
), added as (
    insert into oauthbroker.queued (agent, id, address, place, record)
    select %(agent)s, %(id)s, %(address)s, nextval('oauthbroker.place'), %(record)s from gate
    on conflict do nothing returning true
)
select {_TELL} from added""",
    "known": f"select true from oauthbroker.queued where {_MINE}",
    "waiting": "select count(*) from oauthbroker.queued where agent = %(agent)s and state = 'waiting'",
    "lease": f"""
with {_OLDEST_FREE}, head as materialized (
    select first.agent, first.id {_WAITING} and {_FREE} and {_IS_HEAD}
    and first.place >= (select place from oldest) order by first.place limit 1 for update of first skip locked
)
update oauthbroker.queued as mine
set attempts = attempts + 1, lease = %(lease)s, due = {_NOW} + %(seconds)s * interval '1 second'
from head where mine.agent = head.agent and mine.id = head.id
returning mine.id, mine.record, mine.attempts, mine.due""",
    "dead": f"""
with over as (
    update oauthbroker.queued set state = 'dead', attempts = least(attempts, %(most)s), lease = null, due = null,
        place = nextval('oauthbroker.place')
    where {_LEASED} returning agent, id, address, state
){_FOLLOWED}""",
    "ack": f"""
with over as (
    update oauthbroker.queued set state = 'done', due = null, record = null, place = nextval('oauthbroker.place')
    where {_LEASED} returning agent, id, address, state
){_FOLLOWED}""",
    "was acked": f"select true from oauthbroker.queued where {_MINE} and state = 'done' and lease = %(lease)s",
    "nack": f"""
with over as (
    update oauthbroker.queued set refused = refused || %(lease)s::bytea, lease = null,
        state = case when attempts >= %(most)s then 'dead' else 'waiting' end,
        place = case when attempts >= %(most)s then nextval('oauthbroker.place') else place end,
        due = case when attempts < %(most)s
            then {_NOW} + (%(pauses)s::float8[])[least(attempts, %(last)s)] * interval '1 second' end
    where {_LEASED} returning agent, id, address, state
){_FOLLOWED}""",
    "was refused": f"select true from oauthbroker.queued where {_MINE} and %(lease)s = any (refused)",
    "extend": f"""
update oauthbroker.queued set due = {_NOW} + %(seconds)s * interval '1 second' where {_LEASED} returning true""",
    "give back": f"""
update oauthbroker.queued set attempts = attempts - 1, lease = null, due = null where {_LEASED} returning {_TELL}""",
    "unsettled": f"""
select lease from oauthbroker.queued
where agent = %(agent)s and state = 'waiting' and due > {_NOW} and lease = any (%(leases)s)""",
    "settled": """
select lease from oauthbroker.queued
where agent = %(agent)s and state = 'done' and lease = any (%(leases)s)
union select unnest(refused) from oauthbroker.queued where agent = %(agent)s and refused && %(leases)s::bytea[]""",
    "letters": """
select agent, id, record, attempts from (
    select *, row_number() over (partition by agent order by place desc) as number from oauthbroker.queued
    where state = 'dead' and (%(agent)s::bytea is null or agent = %(agent)s)
) as letter where %(most)s::bigint is null or number <= %(most)s order by agent, place desc""",
    "is dead": f"select true from oauthbroker.queued where {_MINE} and state = 'dead'",
    "revive": f"""
with gate as materialized (
    select agent, id, {_GATE.format("address")} from oauthbroker.queued where {_MINE} and state = 'dead'
)
update oauthbroker.queued as mine
set state = 'waiting', attempts = 0, lease = null, due = null, place = nextval('oauthbroker.place')
from gate where mine.agent = gate.agent and mine.id = gate.id and mine.state = 'dead' returning {_TELL}""",
    "drop": f"""
update oauthbroker.queued set state = 'done', record = null, place = nextval('oauthbroker.place')
where {_MINE} and state = 'dead' returning true""",
    "erase": f"""
insert into oauthbroker.queued (agent, id, address, place, state)
select %(agent)s, unnest(%(ids)s::bytea[]), %(agent)s, 0, 'done'
on conflict (agent, id) do update
set state = 'done', record = null, lease = null, due = null, refused = '{{}}', place = 0
returning {_TELL}""",
    "depths": f"""
select waiting, leased, dead, id, record from (
    select agent, count(*) filter (where state = 'waiting' and (lease is null or due <= {_NOW})) as waiting,
        count(*) filter (where state = 'waiting' and lease is not null and due > {_NOW}) as leased,
        count(*) filter (where state = 'dead') as dead, (array_agg(id order by state desc, place))[1] as id
    from oauthbroker.queued where state <> 'done' group by agent
) as counted join oauthbroker.queued using (agent, id)""",
    "records": """
select agent, id, record from oauthbroker.queued
where state <> 'done' and (agent, id) > (%(agent)s, %(after)s) order by agent, id limit 64""",
    "record": "select record from oauthbroker.queued where id = %(id)s and record is not null",
    "forget": """
delete from oauthbroker.queued where agent = %(agent)s and state = %(state)s and place < (
    select place from oauthbroker.queued where agent = %(agent)s and state = %(state)s
    order by place desc offset %(kept)s limit 1
)""",
    "take over": f"""
insert into oauthbroker.queued (agent, id, address, place, record, state, attempts, lease, due)
select %(agent)s, %(id)s, %(address)s, nextval('oauthbroker.place'), %(record)s::bytea, %(state)s, %(attempts)s,
    %(lease)s::bytea, %(due)s::timestamptz from oauthbroker.keyring where epoch = %(epoch)s
on conflict do nothing returning {_TELL}""",
}
