-- Whim's tables in PostgreSQL 13 or newer. `whim serve` makes them by itself if it may; where it
-- may not, have the owner of the database run this (`whim schema` prints it) and grant the service
-- USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables.

CREATE SCHEMA whim;

CREATE TABLE whim.meta (name text PRIMARY KEY, value text NOT NULL);

-- One row per shard: the number and time of its last row, and how far retention has removed rows.
-- Whoever appends locks it, so that numbers are given in the order of commits and without gaps.
CREATE TABLE whim.head (
  shard integer PRIMARY KEY, seq bigint NOT NULL DEFAULT 0, at bigint NOT NULL DEFAULT 0,
  trimmed bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);  -- its rows change with every commit and must stay on their page

-- Times are microseconds since 1970. Keys are bytes: an id may hold what text may not, and they
-- are compared without a collation, which an update of the system could change.
CREATE TABLE whim.log (
  shard integer NOT NULL, kind smallint NOT NULL, seq bigint NOT NULL, at bigint NOT NULL,
  crc bigint NOT NULL, space integer NOT NULL, key bytea, body bytea NOT NULL,
  PRIMARY KEY (shard, seq)
) WITH (toast_tuple_target = 8160);
ALTER TABLE whim.log ALTER COLUMN body SET STORAGE EXTERNAL;  -- compressing costs more than it saves
CREATE UNIQUE INDEX log_key ON whim.log (kind, space, key) WHERE key IS NOT NULL;
CREATE INDEX log_config ON whim.log (shard, seq) WHERE kind <= 2;

-- The last batch of each writer and what was answered: one whose answer was lost asks again.
CREATE TABLE whim.writer (
  id uuid PRIMARY KEY, shard integer NOT NULL, batch bigint NOT NULL, first bigint NOT NULL,
  at bigint NOT NULL, old_place integer[], old_seq bigint[]
) WITH (fillfactor = 20);

-- That the synchronous standby has all that was committed before the server began: one who connects
-- has seen to it. A crash empties it, since what is then seen may not be with the standby yet.
CREATE UNLOGGED TABLE whim.settled (since timestamptz PRIMARY KEY);

-- Who does what only one replica should. ``beat`` grows as long as the holder lives; who sees it
-- stand still for long enough takes over. No clock of any machine is compared with another.
CREATE TABLE whim.lease (
  name text PRIMARY KEY, holder uuid NOT NULL, term bigint NOT NULL, beat bigint NOT NULL
) WITH (fillfactor = 10);

-- Which shard the rows of a name are in, for ever, and the number of the space that has it now.
-- ``store`` is the database: '' is this one, else the id of the log there. Spaces that were made
-- before there were places, or moved here, are in shard 0 of this one and have no row.
CREATE TABLE whim.place (
  space integer PRIMARY KEY, shard integer NOT NULL, store text NOT NULL DEFAULT '',
  name text NOT NULL UNIQUE
);

CREATE TABLE whim.change (
  space integer NOT NULL, version integer NOT NULL, seq bigint NOT NULL, i integer NOT NULL,
  at bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (space, version, seq, i)
);

-- A snapshot counts once its row is here; its parts are written before.
CREATE TABLE whim.snapshot (
  space integer NOT NULL, version integer NOT NULL, seq bigint NOT NULL, at bigint NOT NULL,
  size bigint NOT NULL, seal bytea NOT NULL, PRIMARY KEY (space, version, seq)
);
CREATE TABLE whim.snapshot_part (
  space integer NOT NULL, version integer NOT NULL, seq bigint NOT NULL, part integer NOT NULL,
  crc bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (space, version, seq, part)
);
ALTER TABLE whim.snapshot_part ALTER COLUMN body SET STORAGE EXTERNAL;

-- What stands for rows that retention has removed, up to row ``seq``; its parts as above.
CREATE TABLE whim.base (
  space integer PRIMARY KEY, seq bigint NOT NULL, version integer NOT NULL, size bigint NOT NULL,
  seal bytea NOT NULL
);
CREATE TABLE whim.base_part (
  space integer NOT NULL, seq bigint NOT NULL, part integer NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (space, seq, part)
);
ALTER TABLE whim.base_part ALTER COLUMN body SET STORAGE EXTERNAL;

-- Small documents that are replaced as a whole, such as the API keys; ``version`` grows each time.
CREATE TABLE whim.document (name text PRIMARY KEY, version bigint NOT NULL, body bytea NOT NULL);

CREATE TABLE whim.hook (url text PRIMARY KEY, since bigint NOT NULL, spaces text NOT NULL);
CREATE TABLE whim.hook_cursor (
  url text NOT NULL, space text NOT NULL, seq bigint NOT NULL, done bigint NOT NULL,
  PRIMARY KEY (url, space)
);

-- What a row's number and time add to the checksum of the rest of it, which its writer knows.
CREATE FUNCTION whim.position_crc(_seq bigint, _at bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (_seq % 4294967291 * 1000003 + _at % 4294967291 * 998244353) & 4294967295
$$;

-- The rows of a batch that are not new: their places in it, from 1, and the numbers of the rows
-- that have their keys; 0 for one that is further up in the same batch. Planned as if the log were
-- large: by statistics from when it was small, it would be read from its beginning to its end.
CREATE FUNCTION whim.known(_space integer[], _kind smallint[], _key bytea[],
  OUT place integer[], OUT seq bigint[]) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  SELECT array_agg(k.i ORDER BY k.i), array_agg(k.seq ORDER BY k.i) INTO place, seq FROM (
    SELECT r.i::integer AS i, coalesce(l.seq, 0) AS seq, l.seq IS NOT NULL AS old,
      row_number() OVER (PARTITION BY r.kind, r.space, r.key ORDER BY r.i) > 1 AS again
    FROM unnest(_space, _kind, _key) WITH ORDINALITY AS r (space, kind, key, i)
    LEFT JOIN whim.log AS l
      ON l.kind = r.kind AND l.space = r.space AND l.key = r.key AND l.key IS NOT NULL
    WHERE r.key IS NOT NULL
  ) AS k WHERE k.old OR k.again;
END $$;

-- Appends a batch: one call, one statement, one transaction, so that no lock waits for a client.
-- Answers with the number of its first row, the time of all, and which rows were not new.
CREATE FUNCTION whim.append(_shard integer, _writer uuid, _batch bigint, _space integer[],
  _kind smallint[], _key bytea[], _body bytea[], _crc bigint[],
  OUT first bigint, OUT at bigint, OUT old_place integer[], OUT old_seq bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  n integer := cardinality(_kind);
  h whim.head;
  w whim.writer;
BEGIN
  SELECT * INTO h FROM whim.head AS x WHERE x.shard = _shard FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no shard %', _shard USING ERRCODE = 'WH002';
  END IF;
  SELECT * INTO w FROM whim.writer AS x WHERE x.id = _writer;
  IF w.batch = _batch THEN  -- it was committed, and the answer was lost
    first := w.first; at := w.at; old_place := w.old_place; old_seq := w.old_seq;
    RETURN;
  ELSIF coalesce(w.batch, 0) <> _batch - 1 THEN  -- a failover has lost batches before this one
    RAISE EXCEPTION 'batch % of % came after %', _batch, _writer, coalesce(w.batch, 0)
      USING ERRCODE = 'WH001';
  END IF;
  at := greatest(h.at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
  first := h.seq + 1;
  BEGIN
    INSERT INTO whim.log (shard, kind, seq, at, crc, space, key, body)
    SELECT _shard, r.kind, h.seq + r.i, at, r.crc # whim.position_crc(h.seq + r.i, at),
      r.space, r.key, r.body
    FROM unnest(_space, _kind, _key, _body, _crc) WITH ORDINALITY
      AS r (space, kind, key, body, crc, i);
  EXCEPTION WHEN unique_violation THEN  -- some keys are there: take only what is new
    SELECT k.place, k.seq INTO old_place, old_seq FROM whim.known(_space, _kind, _key) AS k;
    INSERT INTO whim.log (shard, kind, seq, at, crc, space, key, body)
    SELECT _shard, r.kind, r.seq, at, r.crc # whim.position_crc(r.seq, at),
      r.space, r.key, r.body
    FROM (
      SELECT u.*, h.seq + row_number() OVER (ORDER BY u.i) AS seq
      FROM unnest(_space, _kind, _key, _body, _crc) WITH ORDINALITY
        AS u (space, kind, key, body, crc, i)
      WHERE u.i <> ALL (old_place)
    ) AS r;
    n := n - cardinality(old_place);
  END;
  UPDATE whim.head AS x SET seq = h.seq + n, at = append.at WHERE x.shard = _shard;
  INSERT INTO whim.writer AS x VALUES (_writer, _shard, _batch, first, at, old_place, old_seq)
  ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, first = excluded.first,
    at = excluded.at, old_place = excluded.old_place, old_seq = excluded.old_seq;
END $$;

-- Takes the lease if its beat is still the one that was seen (or nobody ever had it), renews it
-- for its holder, and says who has it now. It is no loss if a crash forgets a beat.
CREATE FUNCTION whim.lead(_name text, _holder uuid, _term bigint, _beat bigint, _take boolean,
  OUT holder uuid, OUT term bigint, OUT beat bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  INSERT INTO whim.lease AS x VALUES (_name, _holder, 1, 1) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    UPDATE whim.lease AS x SET beat = x.beat + 1 WHERE x.name = _name AND x.holder = _holder;
    IF NOT FOUND AND _take THEN
      UPDATE whim.lease AS x SET holder = _holder, term = x.term + 1, beat = x.beat + 1
      WHERE x.name = _name AND x.term = _term AND x.beat = _beat;
    END IF;
  END IF;
  SELECT x.holder, x.term, x.beat INTO holder, term, beat FROM whim.lease AS x
  WHERE x.name = _name;
END $$;
