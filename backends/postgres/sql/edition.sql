-- The edition of these functions. It grows with each change of them, also over versions of the
-- schema, so that Migrate can tell which are newer.
CREATE OR REPLACE FUNCTION holdfast.edition() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 2 $$;

-- Not everybody may execute what was made anew, by this role: others may make functions meanwhile. It
-- is given to the owner of the tables, also if a superuser made it: that role can change what it calls,
-- and must not have that run with other rights.
DO $$ DECLARE f regprocedure; there text := nullif(current_setting('hf.there', true), ''); BEGIN
  FOR f IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace
    AND p.oid <> ALL (coalesce(there, '{}')::oid[])
    AND p.proowner = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
  LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
    IF there IS NOT NULL THEN -- else it is not one transaction, and that may be any function
      EXECUTE format('ALTER FUNCTION %s OWNER TO %I', f, (SELECT pg_get_userbyid(c.relowner)
        FROM pg_catalog.pg_class c WHERE c.oid = 'holdfast.version'::regclass));
    END IF;
  END LOOP;
END $$;
