-- What a reader of the database sees is listed in docs/scaling.md, what the columns hold in docs/store-format.md.

create table oauthbroker.keyring (
    one boolean primary key default true check (one),
    document bytea not null, -- sealed under the KEK, as in the file store
    epoch bigint not null default 1 -- which seed seals: a write names the epoch that it was sealed in, and fails in another
);

-- Each running broker, and which keyring it has opened: a new seed seals only when all of them can open it.
create table oauthbroker.process (
    id bytea primary key,
    keyring bytea not null, -- the first 16 bytes of SHA-256 over the document
    until timestamptz not null -- by the clock of the database
);

create sequence oauthbroker.version;

create table oauthbroker.entry (
    kind text collate "C" not null,
    name bytea not null check (length(name) = 32),
    generation bigint not null check (generation > 0),
    version bigint not null default nextval('oauthbroker.version'), -- never the same twice, also after a deletion
    record bytea not null,
    primary key (kind, name)
);

create table oauthbroker.tag (
    kind text collate "C" not null,
    label text collate "C" not null,
    value bytea not null check (length(value) = 16),
    name bytea not null,
    primary key (kind, label, value, name),
    foreign key (kind, name) references oauthbroker.entry on delete cascade
);
create index tag_of_entry on oauthbroker.tag (kind, name);

create table oauthbroker.set_aside (
    kind text collate "C" not null,
    name bytea not null,
    record bytea not null,
    at timestamptz not null default clock_timestamp()
);

create table oauthbroker.lease (
    name text collate "C" primary key,
    owner bytea not null, -- of one attempt to hold it
    until timestamptz not null -- by the clock of the database
);

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

-- What the brokers of this store have begun to use: a feed, and the timelines of the log.
create table oauthbroker.feature (
    name text collate "C" primary key,
    at timestamptz not null default clock_timestamp()
);

create function oauthbroker.tell_change() returns trigger language plpgsql as $$
begin
    if exists (select from oauthbroker.feature where name = 'feed') then
        perform pg_notify('oauthbroker', old.kind || ' ' || encode(old.name, 'hex'));
    end if;
    return null;
end $$;
create trigger tell_change after update or delete on oauthbroker.entry
    for each row execute function oauthbroker.tell_change();
