package progress

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPollLetsProgressTakeAnyTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		count := func() int { return int(time.Since(began) / (59 * time.Second)) }
		if err := Poll("twenty steps", func() (int, bool) { return count(), count() == 20 }); err != nil {
			t.Error(err)
		}
	})
}

func TestPollFailsWithoutProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		// It moves for ten minutes, and then no longer.
		err := Poll("the end", func() (int, bool) { return int(min(time.Since(began), 10*time.Minute) / time.Second), false })
		if err == nil || !strings.Contains(err.Error(), "at 600") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began).Round(time.Second); took != 11*time.Minute {
			t.Errorf("gave up after %v", took)
		}
	})
}

// A poll that itself takes long counts no more than another one: the process may have been without a processor.
func TestPollCountsPollsNotTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		err := Poll("the end", func() (bool, bool) {
			time.Sleep(time.Second)
			polls++
			return false, polls == 2_000
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestContextEndsWithoutAStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, step, _ := Context(t, "steps")
		for range 10 {
			time.Sleep(59 * time.Second)
			step()
		}
		if ctx.Err() != nil {
			t.Fatal("it ended in spite of the steps")
		}
		<-ctx.Done()
		if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "steps, which stood still") {
			t.Errorf("it ended with %v", cause)
		}
	})
}

func TestContextStopsWatching(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, _, stop := Context(t, "steps")
		stop()
		if cause := context.Cause(ctx); cause != context.Canceled {
			t.Errorf("it ended with %v", cause)
		}
		synctest.Wait()
		before := time.Now()
		stop()
		if !time.Now().Equal(before) {
			t.Error("a second call waited")
		}
	})
}

func TestReceiveReturnsTheValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int)
		go func() {
			time.Sleep(50 * time.Second)
			c <- 7
		}()
		if got := Receive(t, "a number", c); got != 7 {
			t.Errorf("got %d", got)
		}
	})
}
