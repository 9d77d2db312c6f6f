-- What the other functions have in common. They run with the rights of the schema's owner, so
-- that a user needs none on the tables.

CREATE OR REPLACE FUNCTION holdfast.next_rev(last bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT greatest(last + 1, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- Each statement must see what was committed before it: what is decided under a row's lock is
-- read after the lock was taken.
CREATE OR REPLACE FUNCTION holdfast.ready() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'transaction_isolation is %, must be read committed', current_setting('transaction_isolation')
      USING ERRCODE = 'HF003';
  END IF;
END $$;

-- The timeline that the server writes.
CREATE OR REPLACE FUNCTION holdfast.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
$$;

-- True, or an error: the server is on another timeline than a client expects, or the connection makes
-- something else of what a client sends, which is UTF-8 and has NULL in arrays. Settings of a role or
-- of a pool change while programs run, and are of each connection. Calls ask it in a condition that
-- comes before all else; an error undoes all else, too.
CREATE OR REPLACE FUNCTION holdfast.on_timeline(p_least bigint, p_most bigint) RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE is_on bigint;
BEGIN
  IF pg_client_encoding() NOT IN ('UTF8', 'SQL_ASCII') THEN -- the latter leaves bytes as they are
    RAISE EXCEPTION 'client_encoding is %, must be UTF8 (ALTER ROLE ... SET client_encoding = ''UTF8''): '
      'names would be other ones than those of other clients', pg_client_encoding() USING ERRCODE = 'HF005';
  END IF;
  IF current_setting('array_nulls') <> 'on' THEN
    RAISE EXCEPTION 'array_nulls is off, must be on (ALTER ROLE ... SET array_nulls = on): '
      'what is left out of a request would be the text NULL' USING ERRCODE = 'HF005';
  END IF;
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'the server is a standby' USING ERRCODE = '25006';
  END IF;
  is_on := holdfast.timeline();
  IF is_on < p_least OR is_on > p_most THEN
    RAISE EXCEPTION 'the server is on timeline %, must be % to %', is_on, p_least, p_most USING ERRCODE = 'HF004';
  END IF;
  RETURN true;
END $$;

-- Asks for what a lease needs of a commit.
CREATE OR REPLACE FUNCTION holdfast.durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Marks a writer under way, for watches.
CREATE OR REPLACE FUNCTION holdfast.enter() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM holdfast.ready();
  PERFORM pg_advisory_xact_lock_shared(1215261796, 'holdfast'::regnamespace::oid::int);
  PERFORM holdfast.durable();
END $$;

-- The key of a guard on a name. Guards of two names may have the same.
CREATE OR REPLACE FUNCTION holdfast.guard_key(p_name text) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT hashtext('holdfast'::regnamespace::oid::text || '/' || p_name)
$$;

-- Whether a transaction that guards the name is under way.
CREATE OR REPLACE FUNCTION holdfast.guarded(p_name text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (SELECT FROM pg_locks k WHERE k.locktype = 'advisory' AND k.granted
    AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND k.classid = 1215261797::oid AND k.objid = holdfast.guard_key(p_name)::oid AND k.objsubid = 2)
$$;

-- The writers that are under way.
CREATE OR REPLACE FUNCTION holdfast.writers() RETURNS text[] LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(array_agg(k.virtualtransaction), '{}') FROM pg_locks k
  WHERE k.locktype = 'advisory' AND k.granted
    AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND k.classid = 1215261796::oid AND k.objid = 'holdfast'::regnamespace::oid AND k.objsubid = 2
    AND k.pid <> pg_backend_pid()
$$;

-- Makes it final for the sessions that are over. One that is being renewed, or under
-- which something is being acquired, is passed over: it lives.
CREATE OR REPLACE FUNCTION holdfast.finish(p_ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE ids bigint[];
BEGIN
  ids := ARRAY(SELECT s.id FROM holdfast.session s
    WHERE s.id = ANY (p_ids) AND s.ends <= clock_timestamp() AND s.ends > '-infinity' FOR UPDATE SKIP LOCKED);
  IF ids <> '{}' THEN
    UPDATE holdfast.session s SET ends = '-infinity' WHERE s.id = ANY (ids);
  END IF;
END $$;

-- Frees those of the names whose sessions are over for good. A name that is locked, as by a
-- guard, is passed over. The caller has called enter.
CREATE OR REPLACE FUNCTION holdfast.free(p_names text[]) RETURNS int LANGUAGE plpgsql AS $$
DECLARE locked text[]; n int;
BEGIN
  locked := ARRAY(SELECT l.name FROM holdfast.lease l
    WHERE l.name = ANY (p_names) AND l.format = 1 AND l.session IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED);
  WITH freed AS (
    UPDATE holdfast.lease l
    SET session = NULL, rev = holdfast.next_rev(l.rev), nonce = NULL, meta = NULL, since = clock_timestamp()
    WHERE l.name = ANY (locked) AND l.format = 1 AND l.session IS NOT NULL
      AND NOT EXISTS (SELECT FROM holdfast.session s WHERE s.id = l.session AND s.ends > '-infinity')
    RETURNING l.name, l.rev
  )
  INSERT INTO holdfast.change (seq, at, put, name, rev)
  SELECT nextval('holdfast.change_seq'), clock_timestamp(), false, f.name, f.rev FROM freed f;
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END $$;

-- Makes it final for what of the names has run out. True if anything had.
CREATE OR REPLACE FUNCTION holdfast.expire(p_names text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE dead text[];
BEGIN
  dead := ARRAY(SELECT l.name FROM unnest(p_names) u(n) JOIN holdfast.lease l ON l.name = u.n
    LEFT JOIN holdfast.session s ON s.id = l.session
    WHERE l.format = 1 AND l.session IS NOT NULL AND (s.id IS NULL OR s.ends <= clock_timestamp()));
  IF dead = '{}' THEN RETURN false; END IF;
  PERFORM holdfast.enter();
  PERFORM holdfast.finish(ARRAY(SELECT l.session FROM holdfast.lease l WHERE l.name = ANY (dead) AND l.session IS NOT NULL));
  RETURN holdfast.free(dead) > 0;
END $$;

-- The session, which lives until the transaction ends unless it runs out meanwhile; NULL: it
-- is gone for good.
CREATE OR REPLACE FUNCTION holdfast.pin(p_id bigint, p_incarnation text) RETURNS holdfast.session LANGUAGE plpgsql AS $$
DECLARE s holdfast.session;
BEGIN
  SELECT * INTO s FROM holdfast.session x
    WHERE x.id = p_id AND x.incarnation = p_incarnation AND x.ends > clock_timestamp() FOR KEY SHARE;
  IF FOUND THEN RETURN s; END IF;
  SELECT * INTO s FROM holdfast.session x
    WHERE x.id = p_id AND x.incarnation = p_incarnation AND x.ends > '-infinity' FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF s.ends > clock_timestamp() THEN RETURN s; END IF; -- its renewal was under way
  UPDATE holdfast.session x SET ends = '-infinity' WHERE x.id = p_id;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION holdfast.ms_left(p_ends timestamptz) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN p_ends > clock_timestamp()
    THEN ceil(extract(epoch FROM p_ends - clock_timestamp()) * 1000)::bigint ELSE 0 END
$$;

CREATE OR REPLACE FUNCTION holdfast.us(p_at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT floor(extract(epoch FROM p_at) * 1000000)::bigint
$$;
