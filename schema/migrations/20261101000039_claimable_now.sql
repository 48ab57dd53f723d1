-- A claim from the head of a lane does not lock what somebody else has claimed since it began. A statement sees the queue as
-- it was when it began; meanwhile others claim what stands there. Such a row it would follow to its newest version, lock
-- that, and only then find that it is claimed: the lock stays until the end of its transaction, in the way of the end of
-- somebody else's work. A claimer that began behind others so went after them through the whole queue, for seconds.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_claimable_now
-- Volatile, so that it sees what has been committed since the statement that calls it began; not to be inlined.
CREATE FUNCTION ffx_claimable_now(partition smallint, execution uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = partition
            AND e.execution_id = execution
            AND e.lifecycle_phase = 'runnable'
            AND e.eligibility_state = 'eligible_now'
    );
END;
$$;

COMMENT ON FUNCTION ffx_claimable_now(smallint, uuid) IS
    'Is an execution claimable by what is committed now, rather than when the statement began? Asked by claims of rows that somebody has changed or locked, before they lock them.';

-- migrate:down

DROP FUNCTION ffx_claimable_now(smallint, uuid);
