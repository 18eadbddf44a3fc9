-- write_membership --
-- Before the task is posted, so that whatever becomes of the request it can be deleted there.
INSERT INTO pscheduler_membership (
    task_there, task_id, node, revision, attempt, key, test, spec, test_there, participant, tool, state, written_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'posting', $12)
ON CONFLICT DO NOTHING
RETURNING task_there;

-- membership --
-- The newest task of a revision; of the newest revision, if none is named.
SELECT
    task_there, task_id, node, revision, attempt, key, test, spec, test_there, participant, tool, state, duration
FROM pscheduler_membership
WHERE task_id = $1 AND node = $2 AND ($3::integer IS NULL OR revision = $3)
ORDER BY revision DESC, attempt DESC
LIMIT 1;

-- stand --
UPDATE pscheduler_membership SET state = 'standing', duration = $2 WHERE task_there = $1 AND state = 'posting';

-- lose_membership --
UPDATE pscheduler_membership SET state = 'lost' WHERE task_there = $1 AND state IN ('posting', 'standing');

-- end_memberships --
-- All of a task at a host, or those that were posted before one.
UPDATE pscheduler_membership SET state = 'ending'
WHERE task_id = $1 AND node = $2 AND ($3::integer IS NULL OR (revision, attempt) < ($3, $4::integer));

-- ending --
-- The tasks that can be deleted there: all of one of ours, or all that are left. Those with runs that are still to come, or to be
-- fetched, wait unless the whole task is over.
SELECT
    pscheduler_membership.task_there, pscheduler_membership.task_id, pscheduler_membership.node, pscheduler_membership.revision,
    pscheduler_membership.attempt, pscheduler_membership.key, pscheduler_membership.test, pscheduler_membership.spec,
    pscheduler_membership.test_there, pscheduler_membership.participant, pscheduler_membership.tool, pscheduler_membership.state, pscheduler_membership.duration
FROM pscheduler_membership
WHERE
    pscheduler_membership.state = 'ending'
    AND ($1::text IS NULL OR pscheduler_membership.node = $1)
    AND ($2::uuid IS NULL OR pscheduler_membership.task_id = $2)
    AND NOT EXISTS (SELECT FROM pscheduler_booking WHERE pscheduler_booking.task_there = pscheduler_membership.task_there)
ORDER BY pscheduler_membership.written_at
LIMIT 100;

-- over_there --
-- The tasks there whose tasks have ended here; those that are not here, or not any more, only after a while.
UPDATE pscheduler_membership SET state = 'ending'
WHERE
    pscheduler_membership.state <> 'ending'
    AND NOT EXISTS (
        SELECT FROM task WHERE task.id = pscheduler_membership.task_id AND task.state IN ('active', 'paused')
    )
    AND (
        pscheduler_membership.written_at < $1
        OR EXISTS (SELECT FROM task WHERE task.id = pscheduler_membership.task_id)
    );

-- drop_over --
-- The bookings of runs that are over here before they began there.
UPDATE pscheduler_booking SET state = 'dropping', next_at = $1
WHERE
    pscheduler_booking.state = 'kept'
    AND NOT EXISTS (
        SELECT FROM run
        WHERE run.id = pscheduler_booking.run_id AND run.state IN ('booked', 'set-aside', 'running', 'merging')
    );

-- forget_membership --
DELETE FROM pscheduler_membership WHERE task_there = $1;

-- write_bookings --
-- Before they are requested. A repeat of the exchange finds those that are there.
INSERT INTO pscheduler_booking (
    run_there, task_there, run_id, exchange, slot, lease_epoch, starts_at, ends_at, state, next_at
)
SELECT given.run_there, $2, given.run_id, $3, given.slot, $4, given.starts_at, given.ends_at, 'booking', $5
FROM unnest($1::uuid [], $6::uuid [], $7::timestamptz [], $8::timestamptz [], $9::timestamptz [])
    AS given (run_there, run_id, slot, starts_at, ends_at)
ON CONFLICT DO NOTHING;

-- hold_booking --
-- False if it was taken back while it was requested.
UPDATE pscheduler_booking SET state = 'held', data = $2, next_at = $3
WHERE run_there = $1 AND state IN ('booking', 'held')
RETURNING run_there;

-- keep_booking --
UPDATE pscheduler_booking SET state = 'kept', next_at = $2
WHERE run_there = $1 AND state IN ('booking', 'held', 'kept')
RETURNING run_there;

-- begin_booking --
UPDATE pscheduler_booking SET state = 'begun', next_at = $2 WHERE run_there = $1 AND state = 'kept';

-- lose_booking --
UPDATE pscheduler_booking SET state = 'lost', reason = $2, next_at = $3
WHERE run_there = $1 AND state IN ('booking', 'held', 'kept', 'begun');

-- postpone_booking --
UPDATE pscheduler_booking SET next_at = $2 WHERE run_there = $1;

-- drop_bookings --
-- The bookings of an exchange, of a run, or of a task that are to be deleted there. One that is just requested is deleted once
-- more when the request must be over.
UPDATE pscheduler_booking
SET state = 'dropping', next_at = CASE WHEN pscheduler_booking.state = 'booking' THEN pscheduler_booking.next_at ELSE $4 END
WHERE
    ($1::uuid IS NULL OR pscheduler_booking.exchange = $1)
    AND ($2::uuid IS NULL OR pscheduler_booking.run_id = $2)
    AND EXISTS (
        SELECT FROM pscheduler_membership
        WHERE
            pscheduler_membership.task_there = pscheduler_booking.task_there AND pscheduler_membership.node = $3
            AND ($5::uuid IS NULL OR pscheduler_membership.task_id = $5)
    );

-- drop_some --
UPDATE pscheduler_booking SET state = 'dropping', next_at = CASE WHEN state = 'booking' THEN next_at ELSE $2 END
WHERE run_there = ANY($1::uuid []);

-- drop_freed --
-- The runs that an edit of the task has freed, as the lead tells participants.
UPDATE pscheduler_booking
SET state = 'dropping', next_at = CASE WHEN pscheduler_booking.state = 'booking' THEN pscheduler_booking.next_at ELSE $6 END
WHERE
    pscheduler_booking.lease_epoch < $3 AND pscheduler_booking.starts_at >= $4 AND pscheduler_booking.slot >= $5
    AND EXISTS (
        SELECT FROM pscheduler_membership
        WHERE
            pscheduler_membership.task_there = pscheduler_booking.task_there AND pscheduler_membership.node = $2
            AND pscheduler_membership.task_id = $1
    );

-- forget_booking --
DELETE FROM pscheduler_booking WHERE run_there = $1;

-- bookings --
-- Of an exchange, a run, a task, or those that are due, at a host or at all.
SELECT
    pscheduler_booking.run_there, pscheduler_booking.task_there, pscheduler_booking.run_id, pscheduler_booking.exchange,
    pscheduler_booking.starts_at, pscheduler_booking.ends_at, pscheduler_booking.state, pscheduler_booking.data,
    pscheduler_booking.reason, pscheduler_booking.next_at, pscheduler_membership.node, pscheduler_membership.key,
    pscheduler_membership.task_id, pscheduler_membership.tool, pscheduler_membership.test, pscheduler_membership.spec,
    pscheduler_membership.participant
FROM pscheduler_booking
INNER JOIN pscheduler_membership ON pscheduler_booking.task_there = pscheduler_membership.task_there
WHERE
    ($1::text IS NULL OR pscheduler_membership.node = $1)
    AND ($2::uuid IS NULL OR pscheduler_booking.exchange = $2)
    AND ($3::uuid IS NULL OR pscheduler_booking.run_id = $3)
    AND ($4::uuid IS NULL OR pscheduler_membership.task_id = $4)
    AND ($5::timestamptz IS NULL OR pscheduler_booking.next_at <= $5)
ORDER BY pscheduler_booking.next_at, pscheduler_booking.run_there
LIMIT 1000;
