package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

// writing runs a handler of one execution on a fake engine until it has been settled, and returns its execution.
func writing(
	t *testing.T, cfg Config, setUp func(*fakeEngine), handler func(ctx context.Context, job Job[struct{}]) (int, error),
	check func(t *testing.T, b *bubble, x engine.Claimed),
) {
	t.Helper()
	inBubble(t, cfg, func(w *Worker, f *fakeEngine) {
		if setUp != nil {
			setUp(f)
		}
		on(w, "write", handler)
	}, func(t *testing.T, b *bubble) {
		x := work("write")
		b.eng.put(engine.DefaultLane, x)
		b.wakeLane()
		check(t, b, x)
	})
}

func frame(n int) stream.FrameSpec { return stream.FrameSpec{Payload: []byte(strconv.Itoa(n))} }

// writeAll writes frames 0 to n-1.
func writeAll(ctx context.Context, w stream.FrameWriter, n int) error {
	for i := range n {
		if err := w.WriteFrame(ctx, frame(i)); err != nil {
			return err
		}
	}
	return nil
}

// isCount fails the test unless payloads are the numbers 0 to n-1, in order.
func isCount(t *testing.T, payloads []string, n int) {
	t.Helper()
	for i, payload := range payloads {
		if payload != strconv.Itoa(i) {
			t.Fatalf("frame %d is %s", i, payload)
		}
	}
	if len(payloads) != n {
		t.Fatalf("%d frames stored, want %d", len(payloads), n)
	}
}

func TestFramesAreStoredInOrderBeforeTheResult(t *testing.T) {
	for _, outcome := range []string{"result", "error", "panic", "delay"} {
		t.Run(outcome, func(t *testing.T) {
			var stored int
			writing(t, Config{}, func(f *fakeEngine) {
				f.settleTakes = 1
			}, func(ctx context.Context, job Job[struct{}]) (int, error) {
				if err := writeAll(ctx, job.Stream(), 5_000); err != nil {
					return 0, err
				}
				switch outcome {
				case "error":
					return 0, errors.New("failed")
				case "panic":
					panic("failed")
				case "delay":
					return 0, job.Delay(0)
				}
				return 1, nil
			}, func(t *testing.T, b *bubble, x engine.Claimed) {
				stored = len(b.eng.stored(x.ID))
				b.pass(1)
				seen := b.seen()
				if n := items(seen.done) + items(seen.failed) + items(seen.delayed); n != 1 {
					t.Errorf("%d settlements", n)
				}
				isCount(t, b.eng.stored(x.ID), 5_000)
				if stored != 5_000 {
					t.Errorf("%d frames were stored when the settlement began", stored)
				}
			})
		})
	}
}

func TestFullBufferBlocksUntilThereIsRoom(t *testing.T) {
	var blocked chan struct{}
	var written int
	writing(t, Config{}, func(f *fakeEngine) {
		blocked = make(chan struct{})
		f.streams.blocked = blocked
	}, func(ctx context.Context, job Job[struct{}]) (int, error) {
		for written < 3*MaxStreamFrames {
			if err := job.Stream().WriteFrame(ctx, frame(written)); err != nil {
				return 0, err
			}
			written++
		}
		return 0, nil
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		if written != MaxStreamFrames {
			t.Errorf("%d frames fit into the buffer, want %d", written, MaxStreamFrames)
		}
		close(blocked)
		b.pass(1)
		isCount(t, b.eng.stored(x.ID), 3*MaxStreamFrames)
	})
}

func TestWriteStopsWaitingWhenTheLeaseIsLost(t *testing.T) {
	var got error
	writing(t, Config{}, func(f *fakeEngine) {
		f.streams.appendErr = func(stream.Batch) (before, after error) { return errors.New("out of reach"), nil }
		f.renewErr = func(engine.Lease) (item, call error) { return nil, errors.New("out of reach") }
	}, func(_ context.Context, job Job[struct{}]) (int, error) {
		out := job.Stream().Writer(stream.Stdout)
		for got == nil {
			_, got = out.Write([]byte("line\n"))
		}
		return 0, job.Stream().Flush(context.Background())
	}, func(t *testing.T, b *bubble, _ engine.Claimed) {
		b.pass(2 * b.cfg.LeaseTTL)
		if !errors.Is(got, ErrLeaseLost) {
			t.Errorf("the write returned %v", got)
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions still held", n)
		}
	})
}

func TestRefusedLeaseEndsTheStream(t *testing.T) {
	var flushed, next error
	writing(t, Config{}, func(f *fakeEngine) {
		f.streams.appendErr = func(stream.Batch) (before, after error) { return fferr.ErrStaleLease, nil }
	}, func(ctx context.Context, job Job[struct{}]) (int, error) {
		if err := writeAll(ctx, job.Stream(), 1); err != nil {
			return 0, err
		}
		flushed = job.Stream().Flush(ctx)
		next = job.Stream().WriteFrame(ctx, frame(1))
		return 0, nil
	}, func(t *testing.T, b *bubble, _ engine.Claimed) {
		for _, err := range []error{flushed, next} {
			if !errors.Is(err, ErrLeaseLost) || !errors.Is(err, fferr.ErrStaleLease) {
				t.Errorf("got %v", err)
			}
		}
		if n := items(b.seen().done); n != 0 {
			t.Error("the execution was completed without its frames")
		}
	})
}

// Whatever the answers, frames are stored once and in order.
func TestFramesSurviveBusyRowsAndLostAnswers(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		t.Run(fmt.Sprintf("resumed %t", resumed), func(t *testing.T) {
			const n = 2_500
			calls := 0
			inBubble(t, Config{}, func(w *Worker, f *fakeEngine) {
				f.streams.appendErr = func(stream.Batch) (before, after error) {
					calls++
					switch calls % 4 {
					case 1:
						return nil, errors.New("connection lost") // appended
					case 2:
						return fmt.Errorf("append: %w", fferr.ErrBusy), nil
					case 3:
						return errors.New("connection lost"), nil // not appended
					}
					return nil, nil
				}
				on(w, "write", func(ctx context.Context, job Job[struct{}]) (int, error) {
					for i := range n {
						if err := job.Stream().WriteFrame(ctx, frame(i+len(before(resumed)))); err != nil {
							return 0, err
						}
						if i%400 == 0 {
							if err := job.Stream().Flush(ctx); err != nil {
								return 0, err
							}
						}
					}
					return 0, nil
				})
			}, func(t *testing.T, b *bubble) {
				x := work("write")
				x.Resumed = resumed
				b.eng.mu.Lock()
				b.eng.streams.frames = map[id.ExecutionID][]string{x.ID: before(resumed)}
				b.eng.mu.Unlock()
				b.eng.put(engine.DefaultLane, x)
				b.wakeLane()
				b.pass(b.cfg.LeaseTTL)
				isCount(t, b.eng.stored(x.ID), n+len(before(resumed)))
				if items(b.seen().done) != 1 {
					t.Error("not completed")
				}
			})
		})
	}
}

// before returns the frames of an earlier lease.
func before(resumed bool) []string {
	if resumed {
		return []string{"0", "1", "2"}
	}
	return nil
}

func TestFramesOfAllStreamsShareACall(t *testing.T) {
	const jobs, each = 10, 20
	var blocked chan struct{}
	inBubble(t, Config{}, func(w *Worker, f *fakeEngine) {
		blocked = make(chan struct{})
		f.streams.blocked = blocked
		on(w, "write", func(ctx context.Context, job Job[struct{}]) (int, error) {
			return 0, cmp.Or(writeAll(ctx, job.Stream(), each), job.Stream().Flush(ctx))
		})
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(jobs, "write")
		b.wakeLane()
		close(blocked) // during the first call all handlers have written
		b.pass(StreamDelay)
		b.eng.mu.Lock()
		defer b.eng.mu.Unlock()
		if n := len(b.eng.streams.batches); n > 2 {
			t.Errorf("%d calls for %d streams", n, jobs)
		}
		for x, frames := range b.eng.streams.frames {
			if len(frames) != each {
				t.Errorf("%d frames of %s", len(frames), x)
			}
		}
	})
}

// refuseBad refuses appends with a frame "bad".
func refuseBad(b stream.Batch) (before, after error) {
	if slices.ContainsFunc(b.Frames, func(f stream.FrameSpec) bool { return string(f.Payload) == "bad" }) {
		return &fferr.InputError{Field: "frames", Reason: "has a value that can't be stored"}, nil
	}
	return nil, nil
}

// Streams whose frames take a transaction of their own share the calls a few at a time, and take turns.
func TestFewStreamsOfACallHaveATransactionOfTheirOwn(t *testing.T) {
	const jobs, each = 20, 30
	var blocked chan struct{}
	inBubble(t, Config{}, func(w *Worker, f *fakeEngine) {
		blocked = make(chan struct{})
		f.streams.blocked = blocked
		on(w, "write", func(ctx context.Context, job Job[struct{}]) (int, error) {
			for n := range each {
				f := frame(n)
				f.Mode = stream.BestEffort
				if err := job.Stream().WriteFrame(ctx, f); err != nil {
					return 0, err
				}
			}
			return 0, job.Stream().Flush(ctx)
		})
		on(w, "durable", func(ctx context.Context, job Job[struct{}]) (int, error) {
			return 0, cmp.Or(writeAll(ctx, job.Stream(), each), job.Stream().Flush(ctx))
		})
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(jobs, "write")
		durable := work("durable")
		b.eng.put(engine.DefaultLane, durable)
		b.wakeLane()
		close(blocked)
		b.pass(StreamDelay)
		b.eng.mu.Lock()
		defer b.eng.mu.Unlock()
		for i, batches := range b.eng.streams.batches {
			alone := 0
			for _, batch := range batches {
				if batch.Frames[0].Mode == stream.BestEffort {
					alone++
				}
				if batch.Lease.Execution == durable.ID && i > 1 {
					t.Errorf("call %d has the durable frames", i)
				}
			}
			if alone > maxAlone {
				t.Errorf("a call has %d streams with transactions of their own", alone)
			}
		}
		if n := len(b.eng.streams.frames); n != jobs+1 {
			t.Errorf("frames of %d streams", n)
		}
		for x, frames := range b.eng.streams.frames {
			if len(frames) != each {
				t.Errorf("%d frames of %s", len(frames), x)
			}
		}
	})
}

func TestRefusedFrameIsReportedAndLeftOut(t *testing.T) {
	var flushed, again error
	writing(t, Config{}, func(f *fakeEngine) {
		f.streams.appendErr = refuseBad
	}, func(ctx context.Context, job Job[struct{}]) (int, error) {
		for _, payload := range []string{"0", "1", "bad", "2"} {
			if err := job.Stream().WriteFrame(ctx, stream.FrameSpec{Payload: []byte(payload)}); err != nil {
				return 0, err
			}
		}
		flushed, again = job.Stream().Flush(ctx), job.Stream().Flush(ctx)
		return 0, nil
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		isCount(t, b.eng.stored(x.ID), 3)
		if !errors.Is(flushed, fferr.ErrInvalidInput) || again != nil {
			t.Errorf("flushes returned %v, %v", flushed, again)
		}
	})
}

// A write takes its frame, also after an earlier one was refused.
func TestWriteLeavesARefusalToFlush(t *testing.T) {
	var wrote, flushed error
	writing(t, Config{}, nil, func(ctx context.Context, job Job[struct{}]) (int, error) {
		s := job.Stream()
		s.mu.Lock()
		s.refused = &fferr.InputError{Field: "frames", Reason: "has a value that can't be stored"}
		s.mu.Unlock()
		wrote = s.WriteFrame(ctx, frame(0))
		flushed = s.Flush(ctx)
		return 0, nil
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		isCount(t, b.eng.stored(x.ID), 1)
		if wrote != nil || !errors.Is(flushed, fferr.ErrInvalidInput) {
			t.Errorf("the write returned %v, the flush %v", wrote, flushed)
		}
	})
}

// Frames that can't be appended never use up the room of a job that has none in its buffer.
func TestEmptyBufferAlwaysHasRoom(t *testing.T) {
	writing(t, Config{}, nil, func(ctx context.Context, job Job[struct{}]) (int, error) {
		job.appender.reserve(MaxPendingBytes, true)
		defer job.appender.release(MaxPendingBytes)
		for n := range 3 {
			if err := job.Stream().WriteFrame(ctx, frame(n)); err != nil {
				return 0, err
			}
			if err := job.Stream().Flush(ctx); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		isCount(t, b.eng.stored(x.ID), 3)
	})
}

func TestLimitsCountTypesAndCorrelations(t *testing.T) {
	const size = 2 << 10
	text := strings.Repeat("x", size/2)
	written := 0
	var blocked chan struct{}
	writing(t, Config{}, func(f *fakeEngine) {
		blocked = make(chan struct{})
		f.streams.blocked = blocked
	}, func(ctx context.Context, job Job[struct{}]) (int, error) {
		for written < MaxStreamFrames {
			if err := job.Stream().WriteFrame(ctx, stream.FrameSpec{Type: text, Correlation: text}); err != nil {
				return 0, err
			}
			written++
		}
		return 0, nil
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		if written != MaxStreamBytes/size || b.appender.bytes != MaxStreamBytes {
			t.Errorf("%d frames of %d bytes fit into the buffer", written, b.appender.bytes)
		}
		close(blocked)
		b.pass(1)
		if n := len(b.eng.stored(x.ID)); n != MaxStreamFrames {
			t.Errorf("%d frames stored", n)
		}
	})
}

func TestStreamIsOverWhenItsHandlerHasReturned(t *testing.T) {
	var jobs []Job[struct{}]
	inBubble(t, Config{}, func(w *Worker, _ *fakeEngine) {
		on(w, "write", func(ctx context.Context, job Job[struct{}]) (int, error) {
			jobs = append(jobs, job)
			if len(jobs) == 1 {
				return 0, writeAll(ctx, job.Stream(), 1)
			}
			return 0, nil
		})
	}, func(t *testing.T, b *bubble) {
		for range 2 {
			b.eng.putMany(1, "write")
			b.wakeLane()
		}
		for _, job := range jobs {
			if err := job.Stream().WriteFrame(t.Context(), frame(0)); !errors.Is(err, ErrStreamOver) {
				t.Errorf("a late write returned %v", err)
			}
		}
		if b.appender.open.Load() != 0 || b.appender.bytes != 0 {
			t.Errorf("%d streams and %d bytes are left", b.appender.open.Load(), b.appender.bytes)
		}
	})
}

func TestShutdownStoresFrames(t *testing.T) {
	var begun chan struct{}
	writing(t, Config{}, func(*fakeEngine) { begun = make(chan struct{}) }, func(ctx context.Context, job Job[struct{}]) (int, error) {
		err := writeAll(ctx, job.Stream(), 100)
		close(begun)
		<-ctx.Done()
		return 0, cmp.Or(err, context.Cause(ctx))
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		<-begun
		b.stop()
		isCount(t, b.eng.stored(x.ID), 100)
		if items(b.seen().back) != 1 {
			t.Error("not given back")
		}
	})
}

func TestShutdownEndsWithoutTheDatabase(t *testing.T) {
	writing(t, Config{}, func(f *fakeEngine) {
		f.streams.appendErr = func(stream.Batch) (before, after error) { return errors.New("refused"), nil }
	}, func(ctx context.Context, job Job[struct{}]) (int, error) {
		return 0, writeAll(ctx, job.Stream(), 100)
	}, func(t *testing.T, b *bubble, _ engine.Claimed) {
		b.stop()
		if seen := b.seen(); items(seen.done)+items(seen.back) != 0 {
			t.Error("settled without its frames")
		}
	})
}

func TestWriterSplitsAndLogHandlerWritesObjects(t *testing.T) {
	t.Parallel()
	job := JobForTest(struct{}{})
	long := strings.Repeat("x", stream.MaxPayload+1)
	if n, err := job.Stream().Writer(stream.Stdout).Write([]byte(long)); n != len(long) || err != nil {
		t.Fatal(n, err)
	}
	log := slog.New(job.Stream().LogHandler(&slog.HandlerOptions{Level: slog.LevelInfo}))
	log.Debug("left out")
	log.With("a", 1).WithGroup("g").Info("said", "b", 2)
	frames := FramesForTest(job)
	if len(frames) != 3 || len(frames[0].Payload)+len(frames[1].Payload) != len(long) || frames[0].Type != stream.Stdout {
		t.Fatalf("%d frames", len(frames))
	}
	var record struct {
		Msg string
		A   int
		G   struct{ B int }
	}
	if err := json.Unmarshal(frames[2].Payload, &record); err != nil || frames[2].Type != stream.Log {
		t.Fatal(err)
	}
	if record.Msg != "said" || record.A != 1 || record.G.B != 2 {
		t.Errorf("the record is %+v", record)
	}
	if err := (Job[struct{}]{}).Stream().Flush(t.Context()); !errors.Is(err, errNoWorker) {
		t.Error(err)
	}
}

// chatty logs when it is logged.
type chatty struct{ log *slog.Logger }

func (c chatty) LogValue() slog.Value {
	c.log.Info("inner")
	return slog.StringValue("value")
}

func TestValueMayLogWhileItIsLogged(t *testing.T) {
	t.Parallel()
	job := JobForTest(struct{}{})
	log := slog.New(job.Stream().LogHandler(nil))
	log.With("a", 1).Info("outer", "chatty", chatty{log})
	frames := FramesForTest(job)
	if len(frames) != 2 || !strings.Contains(string(frames[0].Payload), `"inner"`) || !strings.HasSuffix(string(frames[1].Payload), `"msg":"outer","a":1,"chatty":"value"}`) {
		t.Errorf("frames %s", frames)
	}
}

func TestStreamForATestRefusesWhatAWorkerRefuses(t *testing.T) {
	t.Parallel()
	job := JobForTest(struct{}{})
	for _, f := range []stream.FrameSpec{
		{Payload: make([]byte, stream.MaxPayload+1)},
		{Payload: []byte("1"), Mode: stream.Summary},
		{Mode: "other"},
	} {
		if err := job.Stream().WriteFrame(t.Context(), f); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("a frame of %d bytes, mode %q: %v", len(f.Payload), f.Mode, err)
		}
	}
	if n := len(FramesForTest(job)); n != 0 {
		t.Errorf("%d frames kept", n)
	}
}

// A writer divides no character, whatever parts its text comes in, and passes bytes that are none.
func TestWriterDividesNoCharacter(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("aé€😀", 20_000)
	for _, size := range []int{1, 2, 3, 5, 7, stream.MaxPayload, len(text)} {
		job := JobForTest(struct{}{})
		out := job.Stream().Writer(stream.Stdout)
		for part := range slices.Chunk([]byte(text+"\xff\xe2"), size) {
			if n, err := out.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		var got strings.Builder
		frames := FramesForTest(job)
		for i, f := range frames {
			if i < len(frames)-2 && !utf8.Valid(f.Payload) {
				t.Fatalf("frame %d of writes of %d bytes is %q", i, size, f.Payload[:min(8, len(f.Payload))])
			}
			got.Write(f.Payload)
		}
		if got.String() != text+"\xff\xe2" {
			t.Errorf("writes of %d bytes become %d bytes, want %d", size, got.Len(), len(text)+2)
		}
	}
}
