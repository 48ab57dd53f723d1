package fftest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

type purchase struct{ Card, Item string }

var buy = engine.Kind[purchase, string]{Name: "buy", Policy: &policy.Execution{Retry: policy.ImmediateRetries(3)}}

// bank charges a card once for each key, and without a key each time.
type bank struct {
	mu      sync.Mutex
	keys    map[string]bool
	charged map[string]int
}

func newBank() *bank { return &bank{keys: make(map[string]bool), charged: make(map[string]int)} }

func (b *bank) charge(card, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key != "" && b.keys[key] {
		return
	}
	b.keys[key] = true
	b.charged[card]++
}

const bookings = "CREATE TABLE bookings (item text, card text)"

func booked(kit *fftest.Kit) (n int) {
	if err := kit.Pool.QueryRow(context.Background(), "SELECT count(*) FROM bookings").Scan(&n); err != nil {
		return -1
	}
	return n
}

// buying charges and books. With careless, the charge has no key.
func buying(careless bool) func(kit *fftest.Kit) any {
	return func(kit *fftest.Kit) any {
		bank := newBank()
		worker.Handle(kit.Worker, buy, func(ctx context.Context, job worker.Job[purchase]) (string, error) {
			_, err := worker.Step(ctx, job, "charge", func(ctx context.Context) (struct{}, error) {
				key := worker.IdempotencyKey(ctx)
				if careless {
					key = ""
				}
				bank.charge(job.Args.Card, key)
				return struct{}{}, nil
			})
			if err != nil {
				return "", err
			}
			_, err = worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
				_, err := tx.Exec(ctx, "INSERT INTO bookings VALUES ($1, $2)", job.Args.Item, job.Args.Card)
				return struct{}{}, err
			})
			return job.Args.Item, err
		})
		fftest.Create(kit, buy, purchase{"ada", "lamp"})
		kit.Drain()
		return []any{bank.charged, booked(kit)}
	}
}

func TestCrashesOfARightHandler(t *testing.T) {
	fftest.Crashes(t, buying(false), fftest.SQL(bookings))
}

const planted = "FFTEST_PLANTED"

// TestPlantedBug fails, for TestCrashesFindsDoubleCharge.
func TestPlantedBug(t *testing.T) {
	if os.Getenv(planted) == "" {
		t.Skip("fails by intention: run by TestCrashesFindsDoubleCharge")
	}
	fftest.Crashes(t, buying(true), fftest.SQL(bookings))
}

// runPlanted runs a test that must fail, and returns its output.
func runPlanted(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), planted+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("%s has not failed:\n%s", name, out)
	}
	return string(out)
}

func TestCrashesFindsDoubleCharge(t *testing.T) {
	t.Parallel()
	requireText(t, runPlanted(t, "TestPlantedBug"),
		"--- FAIL: TestPlantedBug/before_round_trip_", // of the step's record
		"--- PASS: TestPlantedBug/without_a_death",
		"--- PASS: TestPlantedBug/after_round_trip_1 ", // the claim
		"RecordSteps",
	)
}

// TestPlantedConcurrency fails, for TestCrashesRefusesConcurrency.
func TestPlantedConcurrency(t *testing.T) {
	if os.Getenv(planted) == "" {
		t.Skip("fails by intention: run by TestCrashesRefusesConcurrency")
	}
	fftest.Crashes(t, func(kit *fftest.Kit) any {
		worker.Handle(kit.Worker, buy, func(ctx context.Context, job worker.Job[purchase]) (string, error) {
			return job.Args.Item, blockedBeside(ctx, kit)
		})
		created := fftest.Create(kit, buy, purchase{"ada", "lamp"})
		kit.Drain()
		s, err := kit.Engine.DescribeExecution(context.Background(), created.ID)
		return []any{s.State.Public, err}
	})
}

// blockedBeside has a statement wait for a lock while others are sent.
func blockedBeside(ctx context.Context, kit *fftest.Kit) error {
	tx, err := kit.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(1)"); err != nil {
		return err
	}
	blocked := make(chan error, 1)
	go func() {
		_, err := kit.Pool.Exec(ctx, "SELECT pg_advisory_xact_lock(1)")
		blocked <- err
	}()
	for waiting := false; !waiting; {
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND "+
			"database = (SELECT oid FROM pg_database WHERE datname = current_database()))").Scan(&waiting)
		if err != nil {
			return err
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		return err
	}
	return <-blocked
}

func TestCrashesRefusesConcurrency(t *testing.T) {
	t.Parallel()
	out := runPlanted(t, "TestPlantedConcurrency")
	requireText(t, out, "--- FAIL: TestPlantedConcurrency/without_a_death", "Crashes needs one round trip after the other", "pg_advisory_xact_lock")
	if strings.Contains(out, "round_trip_1") {
		t.Errorf("it goes on:\n%s", out)
	}
}
