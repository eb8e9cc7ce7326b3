-- SPDX-License-Identifier: MIT
-- The largest fence of each resource, and a view that refuses the fence of a former holder. SQLite 3.24 or newer.
--
-- A transaction begins with BEGIN IMMEDIATE and INSERT INTO fence_enter VALUES (resource, fence). One transaction writes
-- at a time, so check and write are one step. RAISE, and no constraint: OR IGNORE would skip what a constraint refuses.

CREATE TABLE fences_seen (resource TEXT PRIMARY KEY NOT NULL, fence INTEGER NOT NULL) WITHOUT ROWID;

CREATE VIEW fence_enter AS SELECT resource, fence FROM fences_seen;

CREATE TRIGGER fence_enter_checked INSTEAD OF INSERT ON fence_enter BEGIN
	SELECT RAISE(ABORT, 'not a fence: bind an integer of 1 to 2^53 - 1')
	WHERE NEW.resource IS NULL OR typeof(NEW.fence) <> 'integer' OR NEW.fence NOT BETWEEN 1 AND 9007199254740991;
	SELECT RAISE(ABORT, 'lock lost: a later holder has written')
	FROM fences_seen WHERE resource = NEW.resource AND fence > NEW.fence;
	INSERT INTO fences_seen VALUES (NEW.resource, NEW.fence)
	ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence;
END;
