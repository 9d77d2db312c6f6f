-- The functions that are there, whose grants stay as they are (edition.sql).
DO $$ BEGIN
  PERFORM set_config('hf.there', ARRAY(SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = 'holdfast'::regnamespace)::text, true);
END $$;
