-- Names mean what they mean in pg_catalog, whatever search_path the session has, until edition.sql puts
-- that back. Then the functions that are there, whose grants stay as they are (edition.sql).
DO $$ BEGIN
  PERFORM pg_catalog.set_config('hf.search_path', pg_catalog.current_setting('search_path'), true);
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  PERFORM set_config('hf.there', ARRAY(SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = 'holdfast'::regnamespace)::text, true);
END $$;
