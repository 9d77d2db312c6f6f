-- Guards a transaction by a lease: from here to the end of the transaction nobody else gets the
-- name, and it fails if the lease is not held with that token. First in the transaction, and not
-- behind a savepoint: going back to one would lift the guard.
CREATE OR REPLACE FUNCTION holdfast.guard(p_name text, p_token bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE l holdfast.lease;
BEGIN
  -- Tells those who find the row locked that it is for a transaction of a user.
  PERFORM pg_advisory_xact_lock_shared(1215261797, holdfast.guard_key(p_name));
  SELECT * INTO l FROM holdfast.lease x WHERE x.name = p_name FOR SHARE;
  IF NOT FOUND OR p_token IS NULL OR p_token <= 0 OR l.format <> 1 OR l.session IS NULL OR l.rev <> p_token
    OR NOT EXISTS (SELECT FROM holdfast.session s WHERE s.id = l.session AND s.ends > clock_timestamp()) THEN
    RAISE EXCEPTION 'lease "%" is not held with token %', p_name, coalesce(p_token::text, 'NULL') USING ERRCODE = 'HF002';
  END IF;
END $$;
