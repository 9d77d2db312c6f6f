-- What leases need of a database, version 1. Statements are separated by empty lines.
--
--   session  one row for each session; a renewal moves ends, which no index has. A session is
--            over for good when ends is -infinity: who wants a name of it writes that, under
--            the row's lock. Its row goes with the last of its leases.
--   lease    one row for each name. It stands while session is set, and is free otherwise;
--            a free row keeps its revision, and is removed an hour later.
--   change   what happened, for watches, for ten minutes.
CREATE TABLE holdfast.version (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version int NOT NULL,                           -- of this schema
  oldest int NOT NULL                             -- version of a client that can use it
);

CREATE TABLE holdfast.state (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  floor bigint NOT NULL DEFAULT 0,                -- the highest revision of a row that was removed
  trimmed bigint NOT NULL DEFAULT 0,              -- the last change that was removed
  purged timestamptz NOT NULL DEFAULT '-infinity'
);

CREATE TABLE holdfast.session (
  id bigint PRIMARY KEY CHECK (id > 0),
  owner text NOT NULL,
  incarnation text NOT NULL,
  address text NOT NULL,
  ttl bigint NOT NULL CHECK (ttl > 0),            -- milliseconds
  ends timestamptz NOT NULL                       -- -infinity: it is over for good
) WITH (fillfactor = 50);

CREATE TABLE holdfast.lease (
  name text COLLATE "C" PRIMARY KEY,
  format smallint NOT NULL DEFAULT 1,             -- any other: a newer version's, left alone
  session bigint,                                 -- NULL: free
  rev bigint NOT NULL DEFAULT 0,                  -- the token, or the revision at which it became free
  nonce bigint,
  meta text,                                      -- a JSON object of strings, or NULL
  since timestamptz NOT NULL DEFAULT clock_timestamp() -- the grant, or when it became free
) WITH (fillfactor = 90);

CREATE INDEX lease_session ON holdfast.lease (session) WHERE session IS NOT NULL;

CREATE SEQUENCE holdfast.change_seq AS bigint CACHE 1;

CREATE TABLE holdfast.change (
  seq bigint PRIMARY KEY,
  at timestamptz NOT NULL,
  put boolean NOT NULL,                           -- false: the name became free
  format smallint NOT NULL DEFAULT 1,
  name text COLLATE "C" NOT NULL,
  rev bigint NOT NULL,
  session bigint,
  nonce bigint,
  meta text,
  owner text,
  incarnation text,
  address text,
  ttl bigint
);

-- Entities of shards, by the name of the shard's lease; the mark changes with each of its writes.
CREATE TABLE holdfast.entity (
  lease text COLLATE "C",
  id text COLLATE "C",
  PRIMARY KEY (lease, id)
);

CREATE TABLE holdfast.entity_mark (
  lease text COLLATE "C" PRIMARY KEY,
  mark bigint NOT NULL
);

INSERT INTO holdfast.version (version, oldest) VALUES (1, 1);

INSERT INTO holdfast.state DEFAULT VALUES;

-- What stands, for people and for the functions that read.
CREATE VIEW holdfast.record AS
  SELECT l.name, l.format::int AS format, l.session, l.rev, l.nonce, l.meta,
    s.owner, s.incarnation, s.address, s.ttl,
    CASE WHEN s.ends > clock_timestamp()
      THEN ceil(extract(epoch FROM s.ends - clock_timestamp()) * 1000)::bigint ELSE 0 END AS left_ms,
    floor(extract(epoch FROM l.since) * 1000000)::bigint AS since_us
  FROM holdfast.lease l LEFT JOIN holdfast.session s ON s.id = l.session
  WHERE l.session IS NOT NULL OR l.format <> 1;

REVOKE ALL ON holdfast.version, holdfast.state, holdfast.session, holdfast.lease, holdfast.change, holdfast.entity,
  holdfast.entity_mark, holdfast.record FROM PUBLIC;
