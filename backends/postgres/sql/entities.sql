-- Entities that are remembered for shards, each by the holder of the shard's lease.

-- Advances the fence: what was sent before, by any client, is not applied any more. One row has the
-- mark, and no id.
CREATE OR REPLACE FUNCTION holdfast.entities_load(p_lease text, p_token bigint) RETURNS TABLE (mark bigint, id text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM holdfast.ready();
  PERFORM holdfast.durable();
  PERFORM holdfast.guard(p_lease, p_token);
  RETURN QUERY INSERT INTO holdfast.entity_mark AS m (lease, mark) VALUES (p_lease, 1)
    ON CONFLICT (lease) DO UPDATE SET mark = m.mark + 1 RETURNING m.mark, NULL;
  RETURN QUERY SELECT 0::bigint, e.id::text FROM holdfast.entity e WHERE e.lease = p_lease;
END $$;

-- Adds ids and then removes ids, if the mark is still p_mark. The answer is the mark as it is then.
CREATE OR REPLACE FUNCTION holdfast.entities_update(p_lease text, p_token bigint, p_mark bigint, p_add text[], p_remove text[],
  OUT applied boolean, OUT mark bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM holdfast.ready();
  PERFORM holdfast.durable();
  PERFORM holdfast.guard(p_lease, p_token);
  INSERT INTO holdfast.entity_mark (lease, mark) VALUES (p_lease, 0) ON CONFLICT DO NOTHING;
  SELECT m.mark INTO mark FROM holdfast.entity_mark m WHERE m.lease = p_lease FOR UPDATE;
  applied := mark = p_mark;
  IF NOT applied THEN RETURN; END IF;
  UPDATE holdfast.entity_mark m SET mark = m.mark + 1 WHERE m.lease = p_lease RETURNING m.mark INTO mark;
  INSERT INTO holdfast.entity (lease, id) SELECT p_lease, u.id FROM unnest(p_add) u(id)
    WHERE u.id <> ALL (p_remove) ORDER BY u.id COLLATE "C" ON CONFLICT DO NOTHING;
  DELETE FROM holdfast.entity e WHERE e.lease = p_lease AND e.id = ANY (p_remove);
END $$;
