-- The edition of these functions. It grows with each change of them, also over versions of the
-- schema, so that Migrate can tell which are newer.
CREATE OR REPLACE FUNCTION holdfast.edition() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;

-- Not everybody may execute what was made anew.
DO $$ DECLARE f regprocedure; BEGIN
  FOR f IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace
    AND p.oid <> ALL (coalesce(nullif(current_setting('hf.there', true), ''), '{}')::oid[])
  LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
  END LOOP;
END $$;
