"""The statements of entries and their tags. Each is a transaction. One that writes a record names the epoch of the
keyring, and does nothing after a rotation that its process has not seen."""

from __future__ import annotations

from typing import Final

GET: Final = "select generation, version, record from oauthbroker.entry where kind = %(kind)s and name = %(name)s"
CREATE: Final = """
insert into oauthbroker.entry (kind, name, generation, record)
select %(kind)s, %(name)s, 1, %(record)s from oauthbroker.keyring where epoch = %(epoch)s
on conflict do nothing returning version, kind, name
"""
REPLACE: Final = """
update oauthbroker.entry
set generation = generation + 1, version = nextval('oauthbroker.version'), record = %(record)s
from oauthbroker.keyring
where kind = %(kind)s and name = %(name)s and generation = %(expect)s and epoch = %(epoch)s
returning version, kind, name
"""
TAGGED: Final = """
with written as ({}), tagged as (
    insert into oauthbroker.tag (kind, name, label, value)
    select kind, name, label, value
    from written, unnest(%(labels)s::text[], %(values)s::bytea[]) as given (label, value)
    on conflict do nothing
)
select version from written
"""
DELETE: Final = """
delete from oauthbroker.entry where kind = %(kind)s and name = %(name)s and generation = %(expect)s returning true
"""
SET_ASIDE: Final = """
with gone as (
    delete from oauthbroker.entry
    where kind = %(kind)s and name = %(name)s and version = %(version)s
    and (select count(*) from oauthbroker.set_aside) < 256
    returning kind, name, record
)
insert into oauthbroker.set_aside (kind, name, record) select kind, name, record from gone returning true
"""
SCAN: Final = """
select %(value)s::bytea, name, generation, version, record from oauthbroker.entry
where kind = %(kind)s and name > %(after)s order by name limit %(limit)s
"""
FIND: Final = """
select value, name, generation, version, record from oauthbroker.entry join oauthbroker.tag using (kind, name)
where kind = %(kind)s and label = %(label)s and value = %(value)s and name > %(after)s order by name limit %(limit)s
"""
LABELLED: Final = """
select value, name, generation, version, record from oauthbroker.tag join oauthbroker.entry using (kind, name)
where kind = %(kind)s and label = %(label)s and (value, name) > (%(value)s, %(after)s)
order by value, name limit %(limit)s
"""
RETAG: Final = """
insert into oauthbroker.tag (kind, name, label, value)
select kind, name, %(label)s, %(value)s from oauthbroker.entry
where kind = %(kind)s and name = %(name)s for key share
on conflict do nothing returning true
"""
UNTAG: Final = """
with still as (
    select kind, name from oauthbroker.entry
    where kind = %(kind)s and name = %(name)s and generation = %(expect)s for update
)
delete from oauthbroker.tag using still, unnest(%(labels)s::text[], %(values)s::bytea[]) as given (label, value)
where tag.kind = still.kind and tag.name = still.name and tag.label = given.label and tag.value = given.value
"""
COUNT: Final = "select count(*) from oauthbroker.entry where kind = %(kind)s"
LEASES: Final = """
select count(*) filter (where until >= clock_timestamp()), count(*) filter (where until < clock_timestamp())
from oauthbroker.lease
"""
BEHIND: Final = """
select exists (select from pg_stat_replication)
    and (current_setting('synchronous_standby_names') = '' or current_setting('synchronous_commit') in ('local', 'off'))
"""
