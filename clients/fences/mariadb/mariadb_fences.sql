-- SPDX-License-Identifier: MIT
-- The largest fence of each resource, and procedures for triggers that refuse a write of a former holder.
--
-- A transaction begins with CALL fence_enter(resource, fence). The lock on the row of the resource then lasts until its
-- end, so that check and write are one step at each isolation level. fence_require refuses a session that is not the
-- last one that entered. Callers need EXECUTE alone: the procedures run with the rights of their definer.

CREATE TABLE fences_seen (
	resource VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
	fence BIGINT NOT NULL,
	session BIGINT UNSIGNED NOT NULL -- the one that entered last
) ENGINE = InnoDB;

DELIMITER //

-- SQLSTATE RF001: a later holder has entered. RF003: not a fence, which may be a text of digits.
CREATE PROCEDURE fence_enter(
	IN the_resource VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	IN the_fence VARCHAR(32)
)
BEGIN
	DECLARE given, seen BIGINT;
	SET given = IF(the_fence REGEXP '^[1-9][0-9]{0,15}$', CAST(the_fence AS SIGNED), NULL);
	IF the_resource IS NULL OR given IS NULL OR given > 9007199254740991 THEN
		SIGNAL SQLSTATE 'RF003' SET MESSAGE_TEXT = 'not a fence';
	END IF;
	SET @fence_session = COALESCE(@fence_session, UUID_SHORT());
	INSERT INTO fences_seen VALUES (the_resource, given, @fence_session)
	ON DUPLICATE KEY UPDATE session = IF(fence <= given, VALUES(session), session), fence = GREATEST(fence, given);
	SELECT fence INTO seen FROM fences_seen WHERE resource = the_resource FOR UPDATE;
	IF seen > given THEN
		SIGNAL SQLSTATE 'RF001' SET MESSAGE_TEXT = 'lock lost: a later holder has written';
	END IF;
END //

-- SQLSTATE RF002: this session has not entered, or another one has since. A plain SELECT would see the past.
CREATE PROCEDURE fence_require(IN the_resource VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
BEGIN
	DECLARE entered INT;
	SELECT COUNT(*) INTO entered FROM fences_seen
	WHERE resource = the_resource AND session = @fence_session FOR UPDATE;
	IF entered = 0 THEN
		SIGNAL SQLSTATE 'RF002' SET MESSAGE_TEXT = 'no fence: this session is not the last one that entered';
	END IF;
END //

DELIMITER ;
