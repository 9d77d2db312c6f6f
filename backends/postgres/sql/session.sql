-- Sessions.

CREATE OR REPLACE FUNCTION holdfast.schema_version(OUT version int, OUT oldest int) LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT v.version, v.oldest FROM holdfast.version v
$$;

-- Opens a session, or renews it. The answer is the TTL in milliseconds; 0: it is over; -1: it is
-- of another incarnation.
CREATE OR REPLACE FUNCTION holdfast.open(p_id bigint, p_owner text, p_incarnation text, p_address text, p_ttl bigint)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE s holdfast.session;
BEGIN
  PERFORM holdfast.enter();
  LOOP
    INSERT INTO holdfast.session (id, owner, incarnation, address, ttl, ends)
      VALUES (p_id, p_owner, p_incarnation, p_address, p_ttl, clock_timestamp() + p_ttl * interval '1 ms')
      ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN RETURN p_ttl; END IF;
    SELECT * INTO s FROM holdfast.session x WHERE x.id = p_id FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    IF s.ends <= clock_timestamp() THEN
      UPDATE holdfast.session x SET ends = '-infinity' WHERE x.id = p_id;
      IF EXISTS (SELECT FROM holdfast.lease l WHERE l.session = p_id AND l.format = 1) THEN RETURN 0; END IF;
      DELETE FROM holdfast.session x WHERE x.id = p_id;
      CONTINUE;
    END IF;
    IF s.incarnation <> p_incarnation THEN RETURN -1; END IF;
    UPDATE holdfast.session x SET ends = clock_timestamp() + x.ttl * interval '1 ms' WHERE x.id = p_id;
    RETURN s.ttl;
  END LOOP;
END $$;

-- Renews those of the sessions that live, and makes it final for the others. It waits for
-- nobody but a renewal of the same session.
CREATE OR REPLACE FUNCTION holdfast.renew(p_ids bigint[], p_incarnations text[])
RETURNS TABLE (id bigint, ttl bigint) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE mine bigint[];
BEGIN
  PERFORM holdfast.enter();
  mine := ARRAY(SELECT s.id FROM holdfast.session s JOIN unnest(p_ids, p_incarnations) u(i, inc)
    ON s.id = u.i AND s.incarnation = u.inc WHERE s.ends > '-infinity' ORDER BY s.id FOR NO KEY UPDATE OF s);
  RETURN QUERY WITH renewed AS (
    UPDATE holdfast.session s SET ends = CASE WHEN s.ends > clock_timestamp()
      THEN clock_timestamp() + s.ttl * interval '1 ms' ELSE '-infinity' END
    WHERE s.id = ANY (mine) AND s.ends > '-infinity' RETURNING s.id, s.ttl, s.ends
  ) SELECT r.id, r.ttl FROM renewed r WHERE r.ends > '-infinity';
END $$;

-- Ends a session and frees some of its names: p_limit at the most. The answer is how many still
-- stand, of p_limit more at the most.
CREATE OR REPLACE FUNCTION holdfast.close(p_id bigint, p_incarnation text, p_limit int, OUT freed int, OUT standing int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM holdfast.enter();
  freed := 0;
  standing := 0;
  PERFORM 1 FROM holdfast.session s WHERE s.id = p_id AND s.incarnation = p_incarnation FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  UPDATE holdfast.session s SET ends = '-infinity' WHERE s.id = p_id AND s.ends > '-infinity';
  freed := holdfast.free(ARRAY(SELECT l.name FROM holdfast.lease l WHERE l.session = p_id
    AND l.format = 1 LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED));
  SELECT count(*) INTO standing FROM (SELECT FROM holdfast.lease l WHERE l.session = p_id AND l.format = 1 LIMIT p_limit) x;
  IF standing = 0 THEN
    DELETE FROM holdfast.session s WHERE s.id = p_id;
  END IF;
END $$;

-- Makes it final for what has run out, of p_limit sessions and p_limit names at the most. The answer is
-- how many of both it removed, whether more is left, as when a guard holds a name, and, unless it is the
-- next call's to go on at once, in how many milliseconds the next session runs out, as it stands (NULL:
-- there is none).
CREATE OR REPLACE FUNCTION holdfast.sweep(p_limit int, OUT freed int, OUT next_ms bigint, OUT more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE dead bigint[]; ended bigint[]; names text[]; locked bigint[]; removed int;
BEGIN
  PERFORM holdfast.ready();
  freed := 0;
  more := false;
  dead := ARRAY(SELECT s.id FROM holdfast.session s WHERE s.ends <= clock_timestamp() LIMIT p_limit);
  IF dead <> '{}' THEN
    PERFORM holdfast.enter();
    PERFORM holdfast.finish(dead);
    ended := ARRAY(SELECT s.id FROM holdfast.session s WHERE s.id = ANY (dead) AND s.ends = '-infinity');
    names := ARRAY(SELECT l.name FROM holdfast.lease l WHERE l.session = ANY (ended)
      AND l.format = 1 LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED);
    freed := holdfast.free(names);
    -- Whether something stands under them is read after they were locked: what began to acquire
    -- before the end has committed by then, or holds its session's row.
    locked := ARRAY(SELECT s.id FROM holdfast.session s WHERE s.id = ANY (ended) FOR UPDATE SKIP LOCKED);
    DELETE FROM holdfast.session s WHERE s.id = ANY (locked)
      AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.session = s.id AND l.format = 1);
    GET DIAGNOSTICS removed = ROW_COUNT;
    freed := freed + removed;
    more := cardinality(dead) = p_limit OR EXISTS (SELECT FROM holdfast.session s WHERE s.id = ANY (dead));
  END IF;
  IF NOT more OR freed = 0 THEN
    SELECT ceil(extract(epoch FROM min(s.ends) - clock_timestamp()) * 1000)::bigint INTO next_ms
      FROM holdfast.session s WHERE s.ends > clock_timestamp();
  END IF;
END $$;

-- Removes what is of no use any more: changes of ten minutes ago, and names that were free for an
-- hour. Once a minute, by the first that calls. The answer is how many rows were removed.
CREATE OR REPLACE FUNCTION holdfast.purge(p_limit int) RETURNS int LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE last bigint; top bigint; names text[]; n int := 0; m int;
BEGIN
  PERFORM holdfast.ready();
  PERFORM 1 FROM holdfast.state t WHERE t.purged <= clock_timestamp() - interval '1 min' OR t.purged > clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN 0; END IF;
  SELECT max(x.seq) INTO last FROM (SELECT c.seq, c.at FROM holdfast.change c ORDER BY c.seq LIMIT p_limit) x
    WHERE x.at < clock_timestamp() - interval '10 min';
  IF last IS NOT NULL THEN
    DELETE FROM holdfast.change c WHERE c.seq <= last;
    GET DIAGNOSTICS n = ROW_COUNT;
  END IF;
  names := ARRAY(SELECT l.name FROM holdfast.lease l WHERE l.session IS NULL AND l.format = 1
    AND l.since < clock_timestamp() - interval '1 hour' LIMIT p_limit FOR UPDATE SKIP LOCKED);
  SELECT max(l.rev) INTO top FROM holdfast.lease l WHERE l.name = ANY (names);
  DELETE FROM holdfast.lease l WHERE l.name = ANY (names);
  GET DIAGNOSTICS m = ROW_COUNT;
  -- Full portions go on at the next call.
  UPDATE holdfast.state t SET floor = greatest(t.floor, top), trimmed = greatest(t.trimmed, last),
    purged = CASE WHEN n >= p_limit OR m >= p_limit THEN t.purged ELSE clock_timestamp() END;
  RETURN n + m;
END $$;
