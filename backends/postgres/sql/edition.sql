-- The edition of these functions. It grows with each change of them, also over versions of the
-- schema, so that Migrate can tell which are newer.
CREATE OR REPLACE FUNCTION holdfast.edition() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;
