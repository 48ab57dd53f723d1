package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

func claim(ctx context.Context, b *Bench) error {
	rows := 10 * b.N
	passes := 3 // over the sizes; each takes rows
	if b.Quick {
		rows, passes = 3*b.N, 2
	}
	dead := rows / 10 * 9
	spare := 0
	for _, size := range claimSizes {
		spare += passes * size * b.claimsOf(size)
	}
	measured := fmt.Sprintf("claims from %d claimable rows; then with the first %d of them ended and not vacuumed", rows, dead)
	if !b.Quick {
		measured += ", first while a snapshot from before their end is held"
	}
	l := lineup{b.Field.Worker, b.Field.River, b.Field.Raw}
	return b.compare(ctx, measured, 1, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		q, ok := c.(contender.Claimer)
		if !ok {
			return nil, errors.New("has no claim to be measured")
		}
		if err := q.Fill(ctx, rows+spare); err != nil {
			return nil, err
		}
		if err := rest(ctx, c); err != nil {
			return nil, err
		}
		got, err := b.claims(ctx, q, "")
		if err != nil {
			return nil, err
		}
		release := func() error { return nil }
		if !b.Quick {
			if release, err = pin(ctx, c); err != nil {
				return nil, err
			}
		}
		if err := q.Bury(ctx, dead); err != nil {
			return nil, errors.Join(err, release())
		}
		if !b.Quick {
			more, err := b.claims(ctx, q, ", dead rows in front, old snapshot")
			if err = errors.Join(err, release()); err != nil {
				return nil, err
			}
			got = append(got, more...)
		}
		more, err := b.claims(ctx, q, ", dead rows in front")
		return append(got, more...), err
	})
}

var claimSizes = []int{1, 10, 100}

// claimsOf returns the number of claims measured for a size.
func (b *Bench) claimsOf(size int) int { return max(5, b.N/(20*size)) }

// claims measures claims of one claimer, for each size during at most Span.
func (b *Bench) claims(ctx context.Context, q contender.Claimer, note string) ([]reading, error) {
	claim, err := q.Claims(ctx)
	if err != nil {
		return nil, err
	}
	var got []reading
	for _, size := range claimSizes {
		var took []time.Duration
		over := time.Now().Add(b.Span)
		for range b.claimsOf(size) {
			began := time.Now()
			n, err := claim(ctx, size)
			if err != nil {
				return nil, err
			}
			if n != size {
				return nil, fmt.Errorf("claimed %d of %d", n, size)
			}
			took = append(took, time.Since(began))
			if time.Now().After(over) {
				break
			}
		}
		got = append(got, latencies(fmt.Sprintf("claim of %d%s", size, note), took)...)
	}
	return got, nil
}
