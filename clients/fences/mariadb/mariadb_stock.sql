-- SPDX-License-Identifier: MIT
-- An example: the row of an item is guarded by the lock stock/ITEM.

CREATE TABLE stock (
	item VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
	amount INT NOT NULL
) ENGINE = InnoDB;

DELIMITER //

CREATE TRIGGER stock_fenced_insert BEFORE INSERT ON stock FOR EACH ROW
CALL fence_require(CONCAT('stock/', NEW.item)) //

CREATE TRIGGER stock_fenced_update BEFORE UPDATE ON stock FOR EACH ROW
BEGIN
	CALL fence_require(CONCAT('stock/', OLD.item));
	CALL fence_require(CONCAT('stock/', NEW.item));
END //

CREATE TRIGGER stock_fenced_delete BEFORE DELETE ON stock FOR EACH ROW
CALL fence_require(CONCAT('stock/', OLD.item)) //

DELIMITER ;
