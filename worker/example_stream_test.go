package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Token is declared once, for the handlers that write the frames and the programs that read them.
var Token = stream.Frame[string]{Type: "token"}

// Tokens of a model become frames of the execution's output as they come. Readers follow them by Token.Tail.
func ExampleJob_Stream() {
	var w *worker.Worker // = worker.New(…)
	worker.Handle(w, Album, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		text := ""
		for _, token := range []string{"Once", " upon", " a", " time"} {
			if err := Token.Write(ctx, job.Stream(), token); err != nil {
				return "", err
			}
			text += token
		}
		return text, nil
	})
}

// The output of another program, line by line or as it comes, and the handler's log.
func ExampleStream_Writer() {
	var w *worker.Worker // = worker.New(…)
	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) {
		log := slog.New(job.Stream().LogHandler(nil))
		log.InfoContext(ctx, "resizing", "width", job.Args.Width)
		convert := exec.CommandContext(ctx, "convert", job.Args.Image, "-resize", fmt.Sprint(job.Args.Width), "small.png")
		convert.Stdout = job.Stream().Writer(stream.Stdout)
		convert.Stderr = job.Stream().Writer(stream.Stderr)
		return ResizeResult{URL: "small.png"}, convert.Run()
	})
}

// Readers see the frame of a turn if the order was billed, and only then.
func ExampleTurnTx_WriteFrame() {
	var (
		w      *worker.Worker // = worker.New(…)
		Billed = stream.Frame[int64]{Type: "billed"}
	)
	worker.Handle(w, Bill, func(ctx context.Context, job worker.Job[Order]) (struct{}, error) {
		return struct{}{}, worker.Turn(ctx, job, "bill", func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET billed = true WHERE id = $1", job.Args.Number); err != nil {
				return err
			}
			return Billed.Write(ctx, t, job.Args.Number)
		})
	})
}

// A test without a database reads what the handler has written.
func ExampleFramesForTest() {
	job := worker.JobForTest(struct{}{})
	_ = Token.Write(context.Background(), job.Stream(), "Once")
	for _, frame := range worker.FramesForTest(job) {
		fmt.Printf("%s %s\n", frame.Type, frame.Payload)
	}
	// Output: token "Once"
}
