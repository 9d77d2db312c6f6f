-- Reading. What has run out is made final first, so that nothing that was read as free stands
-- again.

-- The records of names.
CREATE OR REPLACE FUNCTION holdfast.get(p_names text[]) RETURNS SETOF holdfast.record LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM holdfast.ready();
  PERFORM holdfast.expire(p_names);
  RETURN QUERY SELECT r.* FROM holdfast.record r WHERE r.name = ANY (p_names);
END $$;

-- The records whose name begins with p_prefix and comes after p_after, of p_limit names at the
-- most. If there are more names, a row of format 100000 has the last name that was looked at.
CREATE OR REPLACE FUNCTION holdfast.list(p_prefix text, p_after text, p_limit int) RETURNS SETOF holdfast.record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE names text[];
BEGIN
  PERFORM holdfast.ready();
  names := ARRAY(SELECT l.name FROM holdfast.lease l
    WHERE l.name >= p_prefix COLLATE "C" AND l.name > p_after COLLATE "C" AND l.name < (p_prefix || repeat(chr(1114111), 129)) COLLATE "C"
      AND (l.session IS NOT NULL OR l.format <> 1)
    ORDER BY l.name LIMIT p_limit);
  PERFORM holdfast.expire(names);
  RETURN QUERY SELECT r.* FROM holdfast.record r WHERE r.name = ANY (names);
  IF cardinality(names) = p_limit THEN
    RETURN QUERY SELECT names[p_limit] COLLATE "C", 100000, NULL::bigint, NULL::bigint, NULL::bigint, NULL, NULL, NULL, NULL, NULL::bigint, NULL::bigint, NULL::bigint;
  END IF;
END $$;

-- The records under a session, likewise. If it is over and nothing stands under it, one row of
-- format 100001.
CREATE OR REPLACE FUNCTION holdfast.list_session(p_id bigint, p_after text, p_limit int) RETURNS SETOF holdfast.record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE names text[]; last text;
BEGIN
  PERFORM holdfast.ready();
  IF NOT EXISTS (SELECT FROM holdfast.session s WHERE s.id = p_id AND s.ends > clock_timestamp()) THEN
    PERFORM holdfast.enter();
    PERFORM holdfast.pin(p_id, (SELECT s.incarnation FROM holdfast.session s WHERE s.id = p_id));
    IF NOT EXISTS (SELECT FROM holdfast.session s WHERE s.id = p_id AND s.ends > '-infinity') THEN
      -- Portions of what is over are freed by each that asks, until nothing is left.
      PERFORM holdfast.free(ARRAY(SELECT l.name FROM holdfast.lease l WHERE l.session = p_id LIMIT 10000));
      IF NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.session = p_id AND l.format = 1) THEN
        RETURN QUERY SELECT '' COLLATE "C", 100001, NULL::bigint, NULL::bigint, NULL::bigint, NULL, NULL, NULL, NULL, NULL::bigint, NULL::bigint, NULL::bigint;
        RETURN;
      END IF;
    END IF;
  END IF;
  names := ARRAY(SELECT l.name FROM holdfast.lease l WHERE l.session = p_id AND l.name > p_after COLLATE "C"
    ORDER BY l.name LIMIT p_limit);
  RETURN QUERY SELECT r.* FROM holdfast.record r WHERE r.name = ANY (names) AND r.session = p_id;
  IF cardinality(names) = p_limit THEN
    RETURN QUERY SELECT names[p_limit] COLLATE "C", 100000, NULL::bigint, NULL::bigint, NULL::bigint, NULL, NULL, NULL, NULL, NULL::bigint, NULL::bigint, NULL::bigint;
  END IF;
END $$;
