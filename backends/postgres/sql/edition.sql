-- The edition of these functions. It grows with each change of them, also over versions of the
-- schema, so that Migrate can tell which are newer.
CREATE OR REPLACE FUNCTION holdfast.edition() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 3 $$;

-- Not everybody may execute what was made anew, by this role: others may make functions meanwhile. It
-- is given to the owner of the tables, also if a superuser made it: that role can change what it calls,
-- and must not have that run with other rights. Nor must another role keep what was replaced: it could
-- change it later.
DO $$ DECLARE f regprocedure; there text := nullif(current_setting('hf.there', true), '');
  owner oid := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = 'holdfast.version'::regclass);
BEGIN
  FOR f IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace
    AND p.oid <> ALL (coalesce(there, '{}')::oid[])
    AND p.proowner = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
  LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
    IF there IS NOT NULL THEN -- else it is not one transaction, and that may be any function
      EXECUTE format('ALTER FUNCTION %s OWNER TO %I', f, pg_get_userbyid(owner));
    END IF;
  END LOOP;
  FOR f IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace
    AND p.proowner <> owner AND (p.xmin = pg_current_xact_id()::xid -- of this transaction, or after a savepoint in it
      OR p.oid = ANY (coalesce(there, '{}')::oid[]) AND age(p.xmin) < age(pg_current_xact_id()::xid))
  LOOP
    RAISE EXCEPTION 'the function % was there before, and belongs to %, not to % as the tables do: drop it, or ALTER FUNCTION ... OWNER TO %',
      f, (SELECT pg_get_userbyid(p.proowner) FROM pg_catalog.pg_proc p WHERE p.oid = f), pg_get_userbyid(owner), pg_get_userbyid(owner)
      USING ERRCODE = '42723';
  END LOOP;
  PERFORM set_config('search_path', current_setting('hf.search_path', true), true);
END $$;
