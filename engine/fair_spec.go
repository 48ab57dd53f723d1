package engine

import (
	"fmt"
	"strconv"

	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/fair"
)

// Limits of [FairShare].
const (
	MaxTenant     = 255 // bytes of a tenant's name
	MaxFairWeight = fair.MaxWeight
)

// Fair makes the tenants of a lane take turns, whatever their backlogs: [Kind.Fair]. The zero value does not.
type Fair[In any] struct {
	tenant func(In) string
	weight func(In) int
}

// RoundRobin returns a [Fair] with the tenant returned by a function, and equal weights:
//
//	Fair: engine.RoundRobin(func(a SyncArgs) string { return a.Tenant })
//
// An empty tenant fails the creation.
func RoundRobin[In any](tenant func(In) string) Fair[In] { return Fair[In]{tenant: tenant} }

// Weigh returns f with the weights of the tenants, from 1 to [MaxFairWeight]. While both wait, a tenant of weight 3
// starts three executions for each execution of a tenant of weight 1.
func (f Fair[In]) Weigh(weight func(In) int) Fair[In] {
	f.weight = weight
	return f
}

// share returns the share of an execution with args.
func (f Fair[In]) share(args In) (FairShare, error) {
	if f.tenant == nil {
		if f.weight != nil {
			return FairShare{}, core.Invalid("Fair", "has weights but no tenant: make it by RoundRobin")
		}
		return FairShare{}, nil
	}
	share := FairShare{Tenant: f.tenant(args), Weight: 1}
	if f.weight != nil {
		share.Weight = f.weight(args)
		if share.Weight == 0 {
			return share, core.Invalid("Fair.Weight", "is 0")
		}
	}
	return share, share.check()
}

// FairShare is the tenant of an execution, for turns within a lane. The zero value is none. Tenants take turns within
// namespace, lane and priority, over all kinds.
//
// A creation places the execution in the queue after the tenant's earlier work, at a distance of a millisecond divided by
// the weight, but not before work the lane serves now. Other work of the lane is placed by age.
type FairShare struct {
	Tenant string // 1 to [MaxTenant] bytes
	Weight int    // 1 to [MaxFairWeight]; 0 is 1
}

// IsZero reports whether f is the zero value.
func (f FairShare) IsZero() bool { return f == FairShare{} }

func (f FairShare) check() error {
	switch {
	case f.IsZero():
		return nil
	case f.Tenant == "":
		return core.Invalid("Fair.Tenant", "is empty")
	case f.Weight < 0 || f.Weight > MaxFairWeight:
		return core.Invalid("Fair.Weight", fmt.Sprintf("is %d, not from 1 to %d", f.Weight, MaxFairWeight))
	}
	return core.CheckText("Fair.Tenant", f.Tenant, MaxTenant)
}

// field renders a share as a field of a document, after others; "" for none.
func (f FairShare) field() string {
	if f.IsZero() {
		return ""
	}
	field := appendQuoted(append(make([]byte, 0, 64), `,"ffx_fair":{"tenant":`...), f.Tenant)
	field = strconv.AppendInt(append(field, `,"weight":`...), int64(f.Weight), 10)
	return string(append(field, '}'))
}

// rawFair is a share in the document of an execution, for reads.
type rawFair struct {
	Tenant string `json:"tenant,omitempty"`
	Weight int    `json:"weight,omitempty"`
}

func (c *creation) setFair(share FairShare) error {
	if err := share.check(); err != nil {
		return err
	}
	if !share.IsZero() {
		share.Weight = max(share.Weight, 1)
	}
	c.fair = share
	return nil
}

// placesMs returns the places of creations, 0 without a fair share, and none if no creation is fair.
func placesMs(creations []creation) []int64 {
	places := []int64{}
	for i := range creations {
		if creations[i].place.Ns != 0 {
			if len(places) == 0 {
				places = make([]int64, len(creations))
			}
			places[i] = creations[i].place.Ns / fair.Unit
		}
	}
	return places
}
