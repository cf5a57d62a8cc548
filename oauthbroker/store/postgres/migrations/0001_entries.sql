-- What a reader of the database sees is listed in docs/scaling.md: sealed records, keyed names and tags, generations.

create table oauthbroker.keyring (
    one boolean primary key default true check (one),
    document bytea not null -- sealed under the KEK, as in the file store
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
