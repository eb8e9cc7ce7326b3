-- SPDX-License-Identifier: MIT
-- The fence in the row itself, without a trigger. Each statement compares and writes in one step.
--
-- A write is lost if it affects no row. Connect with CLIENT_FOUND_ROWS (JDBC does): without it, MariaDB does not count
-- a row whose values stay the same, and the second equal write of one holder looks lost.

-- table: a row is never deleted, since it keeps the fence
CREATE TABLE stock_rows (
	item VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
	amount INT,
	fence BIGINT NOT NULL CHECK (fence BETWEEN 1 AND 9007199254740991)
) ENGINE = InnoDB;

-- first: makes the row if there is none
INSERT INTO stock_rows (item, fence) VALUES (:item, :fence) ON DUPLICATE KEY UPDATE fence = fence;

-- enter: before you read
UPDATE stock_rows SET fence = :fence WHERE item = :item AND fence <= :fence;

-- write
UPDATE stock_rows SET amount = :amount, fence = :fence WHERE item = :item AND fence <= :fence;

-- delete
UPDATE stock_rows SET amount = NULL, fence = :fence WHERE item = :item AND fence <= :fence;
