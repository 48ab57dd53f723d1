package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// stepStreams is the name of the rewriting of streams in the ledger.
const stepStreams = stepRewrite + "ff_stream_frame"

// streamPositions write the position of each stream to its attempt, and how many frames of two modes there are, for one
// partition, and only for rows without a position.
var streamPositions = []string{
	`UPDATE ff_attempt AS a
	SET
		ffx_stream_ts_ms = f.ts_ms,
		ffx_stream_seq = f.seq,
		ffx_stream_frames = f.ffx_number,
		ffx_stream_durable = f.ffx_durable
	FROM (
		SELECT DISTINCT ON (t.execution_id, t.attempt_index) t.*
		FROM ff_stream_frame AS t
		WHERE t.partition_key = $1
		ORDER BY t.execution_id, t.attempt_index, t.ts_ms DESC, t.seq DESC
	) AS f
	WHERE
		a.partition_key = $1
		AND a.execution_id = f.execution_id
		AND a.attempt_index = f.attempt_index
		AND a.ffx_stream_frames IS NULL`,
	`UPDATE ff_stream_meta AS m
	SET ffx_kept = f.kept
	FROM (
		SELECT t.execution_id, t.attempt_index, count(*)::integer AS kept
		FROM ff_stream_frame AS t
		WHERE t.partition_key = $1 AND t.mode = 'best_effort'
		GROUP BY t.execution_id, t.attempt_index
	) AS f
	WHERE m.partition_key = $1 AND m.execution_id = f.execution_id AND m.attempt_index = f.attempt_index AND m.ffx_kept IS NULL`,
	`UPDATE ff_stream_summary AS s
	SET ffx_kept = f.kept
	FROM (
		SELECT t.execution_id, t.attempt_index, count(*)::integer AS kept
		FROM ff_stream_frame AS t
		WHERE t.partition_key = $1 AND t.mode = 'summary'
		GROUP BY t.execution_id, t.attempt_index
	) AS f
	WHERE s.partition_key = $1 AND s.execution_id = f.execution_id AND s.attempt_index = f.attempt_index AND s.ffx_kept IS NULL`,
}

// rewriteStreams gives the attempts the positions of their streams, one partition per transaction.
func (c *conversion) rewriteStreams(ctx context.Context) error {
	if c.state.steps[stepStreams] {
		return nil
	}
	c.log.DebugContext(ctx, "rewriting", "table", "ff_stream_frame", "schema", c.schema)
	for partition := range 256 {
		var rewritten int64
		err := c.retryLocked(ctx, func() error {
			if err := c.lockStands(ctx); err != nil {
				return err
			}
			return c.inTx(ctx, func(tx pgx.Tx) error {
				for i, statement := range streamPositions {
					tag, err := tx.Exec(ctx, statement, partition)
					if err != nil {
						return err
					}
					if i == 0 {
						rewritten = tag.RowsAffected()
					}
				}
				return nil
			})
		})
		if err != nil {
			return classify("rewrite the positions of streams", err)
		}
		c.count("ff_attempt").Rewritten += rewritten
	}
	if err := c.once(ctx, stepStreams); err != nil {
		return classify("record the rewriting of streams", err)
	}
	c.log.InfoContext(ctx, "rewritten", "table", "ff_stream_frame", "schema", c.schema)
	return nil
}
