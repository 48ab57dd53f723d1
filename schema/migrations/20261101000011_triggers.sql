-- Wake-ups and floors of the outboxes.
--
-- The notify triggers bear the reference's names and take the place of its row-level ones: a commit
-- that notifies holds one lock of the whole cluster until it is flushed, so a transaction notifies at
-- most once per channel, and a connection with ffx.defer_notify = on, as this library's have, not at
-- all: its process rings after the commit.

-- migrate:up

-- object: ff_completion_event notify trigger
DROP TRIGGER IF EXISTS ff_completion_event_notify_trg ON ff_completion_event;

CREATE TRIGGER ff_completion_event_notify_trg
AFTER INSERT ON ff_completion_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_completion');

-- object: ff_lease_event notify trigger
DROP TRIGGER IF EXISTS ff_lease_event_notify_trg ON ff_lease_event;

CREATE TRIGGER ff_lease_event_notify_trg
AFTER INSERT ON ff_lease_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_lease_event');

-- object: ff_signal_event notify trigger
DROP TRIGGER IF EXISTS ff_signal_event_notify_trg ON ff_signal_event;

CREATE TRIGGER ff_signal_event_notify_trg
AFTER INSERT ON ff_signal_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_signal_event');

-- object: ff_operator_event notify trigger
DROP TRIGGER IF EXISTS ff_operator_event_notify_trg ON ff_operator_event;

CREATE TRIGGER ff_operator_event_notify_trg
AFTER INSERT ON ff_operator_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_operator_event');

-- object: ff_stream_frame notify trigger
DROP TRIGGER IF EXISTS ff_stream_frame_notify_trg ON ff_stream_frame;

CREATE TRIGGER ff_stream_frame_notify_trg
AFTER INSERT ON ff_stream_frame
REFERENCING NEW TABLE AS inserted_frames
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_stream();

-- object: ff_completion_event floor triggers
CREATE TRIGGER ffx_ff_completion_event_floor_trg
AFTER DELETE ON ff_completion_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('completion');

CREATE TRIGGER ffx_ff_completion_event_truncate_trg
BEFORE TRUNCATE ON ff_completion_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('completion');

-- object: ff_lease_event floor triggers
CREATE TRIGGER ffx_ff_lease_event_floor_trg
AFTER DELETE ON ff_lease_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('lease');

CREATE TRIGGER ffx_ff_lease_event_truncate_trg
BEFORE TRUNCATE ON ff_lease_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('lease');

-- object: ff_signal_event floor triggers
CREATE TRIGGER ffx_ff_signal_event_floor_trg
AFTER DELETE ON ff_signal_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('signal');

CREATE TRIGGER ffx_ff_signal_event_truncate_trg
BEFORE TRUNCATE ON ff_signal_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('signal');

-- object: ff_operator_event floor triggers
CREATE TRIGGER ffx_ff_operator_event_floor_trg
AFTER DELETE ON ff_operator_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('operator');

CREATE TRIGGER ffx_ff_operator_event_truncate_trg
BEFORE TRUNCATE ON ff_operator_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('operator');

-- migrate:down

DROP TRIGGER ffx_ff_operator_event_truncate_trg ON ff_operator_event;

DROP TRIGGER ffx_ff_operator_event_floor_trg ON ff_operator_event;

DROP TRIGGER ffx_ff_signal_event_truncate_trg ON ff_signal_event;

DROP TRIGGER ffx_ff_signal_event_floor_trg ON ff_signal_event;

DROP TRIGGER ffx_ff_lease_event_truncate_trg ON ff_lease_event;

DROP TRIGGER ffx_ff_lease_event_floor_trg ON ff_lease_event;

DROP TRIGGER ffx_ff_completion_event_truncate_trg ON ff_completion_event;

DROP TRIGGER ffx_ff_completion_event_floor_trg ON ff_completion_event;

DROP TRIGGER ff_stream_frame_notify_trg ON ff_stream_frame;

DROP TRIGGER ff_operator_event_notify_trg ON ff_operator_event;

DROP TRIGGER ff_signal_event_notify_trg ON ff_signal_event;

DROP TRIGGER ff_lease_event_notify_trg ON ff_lease_event;

DROP TRIGGER ff_completion_event_notify_trg ON ff_completion_event;
