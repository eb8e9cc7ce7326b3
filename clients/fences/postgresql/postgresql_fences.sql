-- SPDX-License-Identifier: MIT
-- The largest fence of each resource, and a trigger that refuses a write of a former holder. PostgreSQL 13 or newer.
--
-- A transaction begins with fences.enter(resource, fence). The lock on the row of the resource lasts until its end, so
-- that check and write are one step at each isolation level. The trigger refuses rows of resources that the
-- transaction has not entered. Callers need no right on fences.seen: only these functions change it.

CREATE SCHEMA fences;
GRANT USAGE ON SCHEMA fences TO PUBLIC;

CREATE TABLE fences.seen (
	resource text PRIMARY KEY,
	fence bigint NOT NULL CHECK (fence BETWEEN 1 AND 9007199254740991),
	entered xid8 NOT NULL -- the transaction that entered last
);

-- Fails with RF001 if a later holder has entered.
CREATE FUNCTION fences.enter(resource text, fence bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	INSERT INTO fences.seen VALUES (enter.resource, enter.fence, pg_current_xact_id())
	ON CONFLICT ON CONSTRAINT seen_pkey DO UPDATE SET fence = excluded.fence, entered = excluded.entered
	WHERE seen.fence <= excluded.fence;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'lock lost: % has had a later holder than fence %', enter.resource, enter.fence
		USING ERRCODE = 'RF001';
	END IF;
END $$;

CREATE FUNCTION fences.require(resource text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM FROM fences.seen WHERE seen.resource = require.resource AND entered = pg_current_xact_id();
	IF NOT FOUND THEN
		RAISE EXCEPTION 'no fence: this transaction has not entered %', require.resource
		USING ERRCODE = 'RF002';
	END IF;
END $$;

-- For a trigger, with the start of the resource's name and the column that has the rest; without a column one resource
-- guards the whole table.
CREATE FUNCTION fences.guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP <> 'INSERT' THEN
		PERFORM fences.require(TG_ARGV[0] || coalesce(to_jsonb(OLD) ->> TG_ARGV[1], ''));
	END IF;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	PERFORM fences.require(TG_ARGV[0] || coalesce(to_jsonb(NEW) ->> TG_ARGV[1], ''));
	RETURN NEW;
END $$;
