-- SPDX-License-Identifier: MIT
-- The fence in the row itself, without a trigger. Each statement compares and writes in one step. If it returns no row,
-- the lock is lost. SQLite 3.35 or newer. The type is checked, since a text would be greater than any number.

-- table: a row is never deleted, since it keeps the fence
CREATE TABLE stock_rows (
	item TEXT PRIMARY KEY,
	amount INTEGER,
	fence INTEGER NOT NULL CHECK (typeof(fence) = 'integer' AND fence BETWEEN 1 AND 9007199254740991)
);

-- enter: before you read; makes the row if there is none
INSERT INTO stock_rows (item, fence) VALUES (:item, :fence)
ON CONFLICT (item) DO UPDATE SET fence = excluded.fence WHERE stock_rows.fence <= excluded.fence
RETURNING amount;

-- write
UPDATE stock_rows SET amount = :amount, fence = :fence WHERE item = :item AND fence <= :fence
RETURNING amount;

-- delete
UPDATE stock_rows SET amount = NULL, fence = :fence WHERE item = :item AND fence <= :fence
RETURNING item;
