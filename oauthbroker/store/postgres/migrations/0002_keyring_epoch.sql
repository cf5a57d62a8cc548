-- The epoch counts which seed of the keyring seals. A write names the epoch that it was sealed in, and fails in another.

alter table oauthbroker.keyring add column epoch bigint not null default 1;

-- Each running broker, and which keyring it has opened: a new seed seals only when all of them can open it.
create table oauthbroker.process (
    id bytea primary key,
    keyring bytea not null, -- the first 16 bytes of SHA-256 over the document
    until timestamptz not null -- by the clock of the database
);
