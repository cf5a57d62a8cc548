-- Queues as rows, and the feed of changes. What a reader of the database sees is listed in docs/scaling.md.

create sequence oauthbroker.place;

create table oauthbroker.queued (
    agent bytea not null check (length(agent) = 32), -- keyed hashes, as are `id` and `address`
    id bytea not null check (length(id) = 32),
    address bytea not null check (length(address) = 32),
    place bigint not null, -- the order in an address; of an event that is done or dead, the order in which it became so
    state text collate "C" not null default 'waiting' check (state in ('waiting', 'dead', 'done')),
    attempts integer not null default 0,
    due timestamptz, -- the end of the lease or of the back-off
    lease bytea, -- the newest one, hashed
    refused bytea[] not null default '{}', -- earlier leases that ended by `nack`
    record bytea, -- the sealed event; none when it is done
    primary key (agent, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index queued_head on oauthbroker.queued (agent, address, place) where state = 'waiting';
create index queued_place on oauthbroker.queued (agent, state, place);

-- What a broker of this version has begun to use. Brokers of the version before do not know it, but the triggers do.
create table oauthbroker.feature (
    name text collate "C" primary key,
    at timestamptz not null default clock_timestamp()
);

-- The version before keeps its queues as entries. It may settle events there, and add none beside the rows.
create function oauthbroker.refuse_entry_of_queue() returns trigger language plpgsql as $$
begin
    if exists (select from oauthbroker.feature where name = 'queue') then
        raise exception 'events are queued as rows' using errcode = 'object_not_in_prerequisite_state';
    end if;
    return new;
end $$;
create trigger refuse_entry_of_queue before insert on oauthbroker.entry
    for each row when (new.kind = 'events') execute function oauthbroker.refuse_entry_of_queue();

create function oauthbroker.tell_change() returns trigger language plpgsql as $$
begin
    if exists (select from oauthbroker.feature where name = 'feed') then
        perform pg_notify('oauthbroker', old.kind || ' ' || encode(old.name, 'hex'));
    end if;
    return null;
end $$;
create trigger tell_change after update or delete on oauthbroker.entry
    for each row execute function oauthbroker.tell_change();
