-- SPDX-License-Identifier: MIT
-- An example: the row of an item is guarded by the lock stock/ITEM.

CREATE TABLE stock (item text PRIMARY KEY, amount integer NOT NULL);

CREATE TRIGGER stock_fenced BEFORE INSERT OR UPDATE OR DELETE ON stock
FOR EACH ROW EXECUTE FUNCTION fences.guard('stock/', 'item');
