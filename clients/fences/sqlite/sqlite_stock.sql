-- SPDX-License-Identifier: MIT
-- An example: the row of an item is guarded by the lock stock/ITEM.
--
-- fence_of(resource) is a function of the program, which returns the fence with which it holds the lock, or NULL. In
-- Python: db.create_function("fence_of", 1, held.get), with held = {"stock/apples": lease.fence}. A program that has no
-- such function cannot write.

CREATE TABLE stock (item TEXT PRIMARY KEY, amount INTEGER NOT NULL);

CREATE TRIGGER stock_fenced_insert BEFORE INSERT ON stock BEGIN
	INSERT INTO fence_enter VALUES ('stock/' || NEW.item, fence_of('stock/' || NEW.item));
END;

CREATE TRIGGER stock_fenced_update BEFORE UPDATE ON stock BEGIN
	INSERT INTO fence_enter VALUES ('stock/' || OLD.item, fence_of('stock/' || OLD.item));
	INSERT INTO fence_enter VALUES ('stock/' || NEW.item, fence_of('stock/' || NEW.item));
END;

CREATE TRIGGER stock_fenced_delete BEFORE DELETE ON stock BEGIN
	INSERT INTO fence_enter VALUES ('stock/' || OLD.item, fence_of('stock/' || OLD.item));
END;
