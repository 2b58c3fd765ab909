
-- The place of a name: the one that it has, or the one that is proposed. Numbers of spaces are one
-- sequence over all shards: a new one is above all that were given, and all of ``_made``, those
-- that the caller knows. A name gets a new one where its last space is ``_gone``, or was before.
CREATE FUNCTION whim.take_place(_name text, _gone integer, _made integer, _shard integer,
  _store text) RETURNS whim.place LANGUAGE plpgsql AS $$
DECLARE
  p whim.place;
BEGIN
  LOCK TABLE whim.place IN SHARE ROW EXCLUSIVE MODE;  -- one at a time, so that all see the same
  SELECT * INTO p FROM whim.place AS x WHERE x.name = _name;
  IF p.space IS NULL OR p.space <= _gone THEN
    INSERT INTO whim.place AS x (space, shard, store, name)
    SELECT 1 + greatest(_made, coalesce(max(y.space), 0)), _shard, _store, _name
    FROM whim.place AS y WHERE true
    ON CONFLICT (name) DO UPDATE SET space = excluded.space RETURNING x.* INTO p;
  END IF;
  RETURN p;
END $$;
