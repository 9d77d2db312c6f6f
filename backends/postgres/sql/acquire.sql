-- Ownerships. Answers of the functions here, for each name:
--
--   done     it was applied
--   held     refused: another's record stands, or none that was meant
--   free     nothing stands
--   guarded  nothing was applied: a transaction that guards the name is under way
--   busy     nothing was applied: another request for the name is under way; ask again
--   bad      a row of another format holds the name
--   gone     the session is over: of acquire the one row of the answer
--   parent   what the claim depends on does not stand
--
-- p_seen is the highest revision that the client knows of: tokens are above it too, as the server may
-- have lost rows that had it.
--
-- A row that is locked is not waited for, so that requests can't deadlock, and none waits for a
-- user's transaction. A refusal takes no lock.

CREATE OR REPLACE FUNCTION holdfast.acquire(p_session bigint, p_incarnation text, p_names text[], p_nonces bigint[],
  p_over bigint[], p_meta text[], p_while text[], p_while_rev bigint[], p_while_nonce bigint[], p_seen bigint)
RETURNS TABLE (ord int, answer text, replaced bigint, name text, format int, session bigint, rev bigint, nonce bigint,
  meta text, owner text, incarnation text, address text, ttl bigint, left_ms bigint, since_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE me holdfast.session; wanted text[]; locked text[] := '{}'; parents text[] := '{}'; bottom bigint := 0;
BEGIN
  PERFORM holdfast.ready();
  -- What may be won; all else is refused by what is read below.
  wanted := ARRAY(SELECT p_names[i] FROM generate_subscripts(p_names, 1) i
    LEFT JOIN holdfast.lease l ON l.name = p_names[i] LEFT JOIN holdfast.session s ON s.id = l.session
    WHERE l.name IS NULL OR p_while[i] IS NOT NULL OR l.format = 1 AND (l.session IS NULL OR s.id IS NULL
      OR s.ends <= clock_timestamp() OR s.incarnation = p_incarnation AND l.rev = p_over[i]));
  IF wanted = '{}' THEN
    SELECT * INTO me FROM holdfast.session x
      WHERE x.id = p_session AND x.incarnation = p_incarnation AND x.ends > clock_timestamp();
  END IF;
  IF me.id IS NULL THEN
    PERFORM holdfast.enter();
    me := holdfast.pin(p_session, p_incarnation);
    IF me.id IS NULL THEN
      ord := 0; answer := 'gone';
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  IF wanted <> '{}' THEN
    INSERT INTO holdfast.lease (name) SELECT u.n FROM unnest(wanted) u(n)
      WHERE NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.name = u.n) ORDER BY u.n COLLATE "C" ON CONFLICT DO NOTHING;
    locked := ARRAY(SELECT l.name FROM holdfast.lease l WHERE l.name = ANY (wanted) FOR NO KEY UPDATE SKIP LOCKED);
    IF p_while IS NOT NULL THEN
      parents := ARRAY(SELECT l.name FROM holdfast.lease l WHERE l.name = ANY (p_while) FOR SHARE SKIP LOCKED);
    END IF;
    PERFORM holdfast.finish(ARRAY(SELECT l.session FROM holdfast.lease l
      WHERE l.name = ANY (locked || parents) AND l.session IS NOT NULL AND l.session <> p_session));
    SELECT t.floor INTO bottom FROM holdfast.state t;
  END IF;
  RETURN QUERY WITH claim AS MATERIALIZED (
    SELECT i, p_names[i] AS name, l.format, l.session, l.rev, l.nonce, l.meta, l.since,
      s.owner, s.incarnation, s.address, s.ttl, s.ends, s.incarnation = p_incarnation AND l.rev = p_over[i] AS own,
      CASE
      WHEN p_while[i] IS NOT NULL AND (p.name IS NULL OR p.format <> 1 OR p.rev <> p_while_rev[i]
        OR p.nonce IS DISTINCT FROM p_while_nonce[i] OR ps.id IS NULL OR ps.ends = '-infinity') THEN 'parent'
      WHEN p_while[i] IS NOT NULL AND w.name IS NULL OR l.name IS NULL THEN 'busy'
      WHEN l.format <> 1 THEN 'bad'
      WHEN s.ends > clock_timestamp() AND NOT (s.incarnation = p_incarnation AND l.rev = p_over[i]) THEN 'held'
      WHEN k.name IS NULL AND l.session IS NOT NULL AND holdfast.guarded(l.name) THEN 'guarded'
      WHEN k.name IS NULL THEN 'busy'
      WHEN l.session IS NULL OR s.id IS NULL OR s.ends = '-infinity' THEN 'done'
      WHEN s.incarnation = p_incarnation AND l.rev = p_over[i] THEN 'done'
      ELSE 'held' END AS answer
    FROM generate_subscripts(p_names, 1) i
      LEFT JOIN holdfast.lease l ON l.name = p_names[i] LEFT JOIN holdfast.session s ON s.id = l.session
      LEFT JOIN unnest(locked) k(name) ON k.name = p_names[i]
      LEFT JOIN holdfast.lease p ON p.name = p_while[i] LEFT JOIN holdfast.session ps ON ps.id = p.session
      LEFT JOIN unnest(parents) w(name) ON w.name = p_while[i]
  ), won AS (
    UPDATE holdfast.lease l SET session = me.id, rev = holdfast.next_rev(greatest(l.rev, p_seen, CASE WHEN l.rev = 0 THEN bottom END)),
      nonce = p_nonces[c.i], meta = p_meta[c.i], since = clock_timestamp()
    FROM claim c WHERE c.answer = 'done' AND l.name = c.name
    RETURNING l.name, l.rev, l.since, c.i, l.nonce, l.meta
  ), told AS (
    INSERT INTO holdfast.change (seq, at, put, name, rev, session, nonce, meta, owner, incarnation, address, ttl)
    SELECT nextval('holdfast.change_seq'), x.* FROM (
      SELECT clock_timestamp() AS at, false AS put, c.name, c.rev, NULL::bigint, NULL::bigint, NULL, NULL, NULL, NULL, NULL::bigint
      FROM claim c WHERE c.answer = 'done' AND c.session IS NOT NULL AND (c.ends IS NULL OR c.ends = '-infinity')
      UNION ALL
      SELECT n.since, true, n.name, n.rev, me.id, n.nonce, n.meta, me.owner, me.incarnation, me.address, me.ttl FROM won n
      ORDER BY 3, 2) x
  )
  SELECT c.i, c.answer, CASE WHEN c.answer = 'done' AND c.own AND c.ends > '-infinity' THEN c.rev ELSE 0 END,
    c.name, coalesce(c.format, 1)::int, CASE WHEN n.i IS NULL THEN c.session ELSE me.id END, coalesce(n.rev, c.rev),
    CASE WHEN n.i IS NULL THEN c.nonce ELSE n.nonce END, CASE WHEN n.i IS NULL THEN c.meta ELSE n.meta END,
    CASE WHEN n.i IS NULL THEN c.owner ELSE me.owner END, CASE WHEN n.i IS NULL THEN c.incarnation ELSE me.incarnation END,
    CASE WHEN n.i IS NULL THEN c.address ELSE me.address END, CASE WHEN n.i IS NULL THEN c.ttl ELSE me.ttl END,
    holdfast.ms_left(CASE WHEN n.i IS NULL THEN c.ends ELSE me.ends END), holdfast.us(coalesce(n.since, c.since))
  FROM claim c LEFT JOIN won n ON n.i = c.i;
END $$;

-- Removes ownerships.
CREATE OR REPLACE FUNCTION holdfast.release(p_names text[], p_revs bigint[], p_nonces bigint[])
RETURNS TABLE (ord int, answer text, replaced bigint, name text, format int, session bigint, rev bigint, nonce bigint,
  meta text, owner text, incarnation text, address text, ttl bigint, left_ms bigint, since_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE locked text[];
BEGIN
  PERFORM holdfast.enter();
  locked := ARRAY(SELECT l.name FROM unnest(p_names, p_revs, p_nonces) u(n, r, c)
    JOIN holdfast.lease l ON l.name = u.n AND l.rev = u.r AND l.nonce = u.c
    WHERE l.format = 1 AND l.session IS NOT NULL FOR NO KEY UPDATE OF l SKIP LOCKED);
  PERFORM holdfast.finish(ARRAY(SELECT l.session FROM holdfast.lease l WHERE l.name = ANY (locked) AND l.session IS NOT NULL));
  RETURN QUERY WITH asked AS MATERIALIZED (
    SELECT i, p_names[i] AS name, l.format, l.session, l.rev, l.nonce, l.meta, l.since,
      s.owner, s.incarnation, s.address, s.ttl, s.ends,
      CASE
      WHEN l.name IS NULL THEN 'free'
      WHEN l.format <> 1 THEN 'bad'
      WHEN l.session IS NULL OR s.id IS NULL OR s.ends = '-infinity' THEN 'free'
      WHEN l.rev <> p_revs[i] OR l.nonce IS DISTINCT FROM p_nonces[i] THEN 'held'
      WHEN k.name IS NULL AND holdfast.guarded(l.name) THEN 'guarded'
      WHEN k.name IS NULL THEN 'busy'
      ELSE 'done' END AS answer
    FROM generate_subscripts(p_names, 1) i
      LEFT JOIN holdfast.lease l ON l.name = p_names[i] LEFT JOIN holdfast.session s ON s.id = l.session
      LEFT JOIN unnest(locked) k(name) ON k.name = p_names[i]
  ), freed AS (
    UPDATE holdfast.lease l SET session = NULL, rev = holdfast.next_rev(l.rev), nonce = NULL, meta = NULL, since = clock_timestamp()
    FROM asked a WHERE a.answer = 'done' AND l.name = a.name RETURNING l.name, l.rev
  ), told AS (
    INSERT INTO holdfast.change (seq, at, put, name, rev)
    SELECT nextval('holdfast.change_seq'), clock_timestamp(), false, f.name, f.rev FROM freed f
  )
  SELECT a.i, a.answer, 0::bigint, a.name, coalesce(a.format, 1)::int, a.session, a.rev, a.nonce, a.meta,
    a.owner, a.incarnation, a.address, a.ttl, holdfast.ms_left(a.ends), holdfast.us(a.since)
  FROM asked a;
END $$;

-- Moves ownerships to other sessions. A NULL in p_meta keeps the metadata.
CREATE OR REPLACE FUNCTION holdfast.transfer(p_names text[], p_revs bigint[], p_nonces bigint[],
  p_sessions bigint[], p_incarnations text[], p_new_nonces bigint[], p_meta text[], p_seen bigint)
RETURNS TABLE (ord int, answer text, replaced bigint, name text, format int, session bigint, rev bigint, nonce bigint,
  meta text, owner text, incarnation text, address text, ttl bigint, left_ms bigint, since_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE locked text[]; r record; s holdfast.session; pinned bigint[] := '{}'; owners text[] := '{}';
BEGIN
  PERFORM holdfast.enter();
  FOR r IN SELECT DISTINCT u.i, u.inc FROM unnest(p_sessions, p_incarnations) u(i, inc) ORDER BY u.i, u.inc LOOP
    s := holdfast.pin(r.i, r.inc);
    IF s.id IS NOT NULL THEN
      pinned := pinned || s.id;
      owners := owners || s.incarnation;
    END IF;
  END LOOP;
  locked := ARRAY(SELECT l.name FROM unnest(p_names, p_revs, p_nonces) u(n, r, c)
    JOIN holdfast.lease l ON l.name = u.n AND l.rev = u.r AND l.nonce = u.c
    WHERE l.format = 1 AND l.session IS NOT NULL FOR NO KEY UPDATE OF l SKIP LOCKED);
  PERFORM holdfast.finish(ARRAY(SELECT l.session FROM holdfast.lease l
    WHERE l.name = ANY (locked) AND l.session IS NOT NULL AND l.session <> ALL (pinned)));
  RETURN QUERY WITH move AS MATERIALIZED (
    SELECT i, p_names[i] AS name, l.format, l.session, l.rev, l.nonce, l.meta, l.since,
      s.owner, s.incarnation, s.address, s.ttl, s.ends,
      x.id AS to_id, x.owner AS to_owner, x.incarnation AS to_incarnation, x.address AS to_address, x.ttl AS to_ttl, x.ends AS to_ends,
      CASE
      WHEN l.name IS NULL THEN 'free'
      WHEN l.format <> 1 THEN 'bad'
      WHEN l.session IS NULL OR s.id IS NULL OR s.ends = '-infinity' THEN 'free'
      WHEN l.rev <> p_revs[i] OR l.nonce IS DISTINCT FROM p_nonces[i] THEN 'held'
      WHEN x.id IS NULL THEN 'gone'
      WHEN k.name IS NULL AND holdfast.guarded(l.name) THEN 'guarded'
      WHEN k.name IS NULL THEN 'busy'
      ELSE 'done' END AS answer
    FROM generate_subscripts(p_names, 1) i
      LEFT JOIN holdfast.lease l ON l.name = p_names[i] LEFT JOIN holdfast.session s ON s.id = l.session
      LEFT JOIN unnest(locked) k(name) ON k.name = p_names[i]
      LEFT JOIN unnest(pinned, owners) t(id, inc) ON t.id = p_sessions[i] AND t.inc = p_incarnations[i]
      LEFT JOIN holdfast.session x ON x.id = t.id
  ), moved AS (
    UPDATE holdfast.lease l SET session = m.to_id, rev = holdfast.next_rev(greatest(l.rev, p_seen)), nonce = p_new_nonces[m.i],
      meta = coalesce(p_meta[m.i], l.meta), since = clock_timestamp()
    FROM move m WHERE m.answer = 'done' AND l.name = m.name
    RETURNING l.name, l.rev, l.since, m.i, l.nonce, l.meta
  ), told AS (
    INSERT INTO holdfast.change (seq, at, put, name, rev, session, nonce, meta, owner, incarnation, address, ttl)
    SELECT nextval('holdfast.change_seq'), n.since, true, n.name, n.rev, m.to_id, n.nonce, n.meta,
      m.to_owner, m.to_incarnation, m.to_address, m.to_ttl FROM moved n JOIN move m ON m.i = n.i
  )
  SELECT m.i, m.answer, 0::bigint, m.name, coalesce(m.format, 1)::int, CASE WHEN n.i IS NULL THEN m.session ELSE m.to_id END,
    coalesce(n.rev, m.rev), CASE WHEN n.i IS NULL THEN m.nonce ELSE n.nonce END,
    CASE WHEN n.i IS NULL THEN m.meta ELSE n.meta END, CASE WHEN n.i IS NULL THEN m.owner ELSE m.to_owner END,
    CASE WHEN n.i IS NULL THEN m.incarnation ELSE m.to_incarnation END,
    CASE WHEN n.i IS NULL THEN m.address ELSE m.to_address END, CASE WHEN n.i IS NULL THEN m.ttl ELSE m.to_ttl END,
    holdfast.ms_left(CASE WHEN n.i IS NULL THEN m.ends ELSE m.to_ends END), holdfast.us(coalesce(n.since, m.since))
  FROM move m LEFT JOIN moved n ON n.i = m.i;
END $$;
