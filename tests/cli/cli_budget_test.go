package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCLIBudgets(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	ff.run(t, f.Url, "budget", "list").succeeds(t, "There are no budgets.")
	b := id.NewBudgetID()
	create := []string{"budget", "create", "--id", b.String(), "--hard", "tokens=100", "--soft", "tokens=50", "--soft", "a=b=7", "--reset-every", "24h", "--scope-type", "tenant", "--scope-id", "acme"}
	for range 2 {
		ff.run(t, f.Url, create...).succeeds(t, b.String())
	}
	eng, err := engine.New(f.Pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := budget.Report(t.Context(), eng, budget.Usage{Budget: b, Amounts: map[string]int64{"tokens": 60}}); err != nil {
		t.Fatal(err)
	}
	ff.run(t, f.Url, "budget", "list").succeeds(t, "tokens 60 of 100, soft 50")
	ff.run(t, f.Url, "budget", "show", b.String()).succeeds(t, "60 of 100, soft 50")
	ff.run(t, f.Url, "budget", "show", b.String(), "--json").succeeds(t, `"scope": "tenant acme"`)
	ff.run(t, f.Url, "budget", "reset", b.String()).succeeds(t, "is reset again at")
	ff.run(t, f.Url, "budget", "show", b.String()).succeeds(t, "0 of 100, soft 50")
	ff.run(t, f.Url, "budget", "show", id.NewBudgetID().String()).fails(t, cliNotFound, "ff budget list")
	ff.run(t, f.Url, "budget", "show", "tea").fails(t, cliNotFound, "the key")
	ff.run(t, f.Url, "budget", "set", b.String(), "--hard", "tokens=200", "--soft", "tokens=0", "--cancel-on-breach").succeeds(t, "is changed")
	got, err := budget.Get(t.Context(), eng, b)
	if want := (budget.Limit{Hard: 200}); err != nil || got.Limits["tokens"] != want || !got.CancelOnBreach || got.ResetEvery != 24*time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
	ff.run(t, f.Url, "budget", "set", b.String(), "--hard", "tokens").fails(t, cliUsage, "DIMENSION=NUMBER")
	ff.run(t, f.Url, "budget", "create", "--key", "tenant/acme", "--namespace", "trial", "--hard", "cents=5").succeeds(t, id.BudgetIDOf("trial", "tenant/acme").String())
	ff.run(t, f.Url, "budget", "list").succeeds(t, "tenant/acme")
	ff.run(t, f.Url, "budget", "show", "tenant/acme").fails(t, cliNotFound, "the key")
	ff.run(t, f.Url, "budget", "show", "tenant/acme", "--namespace", "trial").succeeds(t, "0 of 5")
	ff.run(t, f.Url, "budget", "reset", "tenant/acme", "--namespace", "trial").succeeds(t, `Budget "tenant/acme" (`)
	ff.run(t, f.Url, "budget", "delete", "tenant/acme", "--namespace", "trial").succeeds(t, `Budget "tenant/acme" (`+id.BudgetIDOf("trial", "tenant/acme").String()+") is deleted")
	ff.run(t, f.Url, "budget", "delete", "tenant/acme", "--namespace", "trial").fails(t, cliNotFound, "ff budget list")
	ff.run(t, f.Url, "budget", "create", "--hard", "tokens").fails(t, cliUsage, "DIMENSION=NUMBER")
	if got, err := budget.Get(t.Context(), eng, b); err != nil || got.Limits["a=b"].Soft != 7 || !strings.HasPrefix(got.Labels.ScopeType, "tenant") {
		t.Errorf("%+v, %v", got, err)
	}
}
