-- Watching. seq is taken from a sequence under the lock of the name's row, so the changes of a
-- name are in order; those of several names become visible in any order. A number that is missing
-- is that of a writer under way, or of one that was rolled back.

-- Which history the numbers are of: the database system, the server's timeline, and the sequence, which
-- is another one where the schema was made anew, as from a dump. Two systems that were set up alike
-- have the same timeline, and sequences of the same oid.
CREATE OR REPLACE FUNCTION holdfast.history() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT (SELECT c.system_identifier FROM pg_control_system() c) || '/' ||
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || '/' || 'holdfast.change_seq'::regclass::oid
$$;

-- Where a watch begins: the last number that was taken, the history, and the
-- writers under way, one of which may have taken that number or an earlier one.
CREATE OR REPLACE FUNCTION holdfast.watch_begin(OUT last bigint, OUT history text, OUT writers text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM holdfast.ready();
  SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END INTO last FROM holdfast.change_seq q;
  history := holdfast.history();
  writers := array_to_string(holdfast.writers(), ' ');
END $$;

-- Changes after p_last, and those of p_missing, p_limit of them at the most. The first row, of kind
-- 'state', has the writers under way before the changes were read (in name; only if p_missing is
-- not empty), the history (in meta), the last change that was removed (in seq), and the last number
-- that was taken (in rev).
CREATE OR REPLACE FUNCTION holdfast.watch_read(p_last bigint, p_missing bigint[], p_limit int)
RETURNS TABLE (kind text, seq bigint, at_us bigint, put boolean, name text, format int, session bigint, rev bigint, nonce bigint,
  meta text, owner text, incarnation text, address text, ttl bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM holdfast.ready();
  kind := 'state';
  name := CASE WHEN p_missing = '{}' THEN '' ELSE array_to_string(holdfast.writers(), ' ') END;
  meta := holdfast.history();
  SELECT t.trimmed INTO seq FROM holdfast.state t;
  SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END INTO rev FROM holdfast.change_seq q;
  RETURN NEXT;
  RETURN QUERY
    SELECT 'change', c.seq, holdfast.us(c.at), c.put, c.name::text, c.format::int, c.session, c.rev, c.nonce,
      c.meta, c.owner, c.incarnation, c.address, c.ttl
    FROM holdfast.change c WHERE c.seq = ANY (p_missing) OR c.seq IN
      (SELECT x.seq FROM holdfast.change x WHERE x.seq > p_last ORDER BY x.seq LIMIT p_limit)
    ORDER BY c.seq;
END $$;

-- The records under a prefix and the numbers after p_floor that are visible, as of one moment. What has run
-- out stands until it is made final, which changes tell: however much that is, a watch begins.
CREATE OR REPLACE FUNCTION holdfast.watch_snapshot(p_prefix text, p_records boolean, p_floor bigint)
RETURNS TABLE (kind text, seq bigint, name text, format int, session bigint, rev bigint, nonce bigint,
  meta text, owner text, incarnation text, address text, ttl bigint, left_ms bigint, since_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM holdfast.ready();
  RETURN QUERY
    SELECT 'change', c.seq, NULL, NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL, NULL, NULL, NULL, NULL::bigint, NULL::bigint, NULL::bigint
    FROM holdfast.change c WHERE c.seq > p_floor
    UNION ALL
    SELECT 'record', NULL::bigint, r.name::text, r.format, r.session, r.rev, r.nonce, r.meta, r.owner, r.incarnation, r.address, r.ttl, r.left_ms, r.since_us
    FROM holdfast.record r WHERE p_records AND r.name >= p_prefix COLLATE "C"
      AND r.name < (p_prefix || repeat(chr(1114111), 129)) COLLATE "C";
END $$;

-- Tells those who listen that there may be changes. In a transaction of its own: NOTIFY has all
-- notifying transactions of the server commit one after another, for as long as a flush takes.
CREATE OR REPLACE FUNCTION holdfast.ring() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM pg_notify('holdfast_' || (SELECT n.nspname FROM pg_namespace n WHERE n.oid = 'holdfast'::regnamespace), '');
END $$;
