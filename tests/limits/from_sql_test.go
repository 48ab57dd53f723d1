package limits

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Executions that a trigger creates count and wait under the limits of their kind, as those that Go creates do. The commit
// rings the gate of the processes that listen.
func TestTriggersCreateUnderLimits(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(2).Units(func(a sync) int { return max(a.Weight, 1) }))
	created(t, f.Engine, kind, sync{Tenant: "acme"}) // declares the limit
	running := wantClaimable(t, f, 1, "the execution of Go")
	f.Exec(t, `CREATE TABLE orders (tenant text, weight integer)`)
	f.Exec(t, `CREATE FUNCTION sync_order() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM ffx_create('sync', TG_ARGV[0], to_jsonb(NEW), limits => jsonb_build_array(
				jsonb_build_object('name', 'sync/tenant', 'key', NEW.tenant, 'units', NEW.weight)
			));
			RETURN NULL;
		END $$`)
	f.Exec(t, `CREATE TRIGGER sync_order AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION sync_order('`+string(f.Lane)+`')`)
	conn, err := f.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN ffx_gate"); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, "INSERT INTO orders VALUES ('acme', 1), ('acme', 2), ('acme', 1), ('other', 1)")
	if n, err := conn.Conn().WaitForNotification(t.Context()); err != nil || n.Payload != "changed" {
		t.Error(n, err)
	}
	if claimed := claim(t, f, 10); len(claimed) > 0 {
		t.Fatalf("%d pass by the gate", len(claimed))
	}
	claimed := wantClaimable(t, f, 2, "one of each tenant")
	if by := claimedTenants(t, f, claimed); by["acme"] != 1 || by["other"] != 1 {
		t.Errorf("claimed %v", by)
	}
	created(t, f.Engine, kind, sync{Tenant: "acme"}) // waits behind those of SQL
	complete(t, f, running...)
	wantClaimable(t, f, 0, "while two units are needed")
	complete(t, f, claimed...)
	heavy := wantClaimable(t, f, 1, "the heavy one")
	if s := describe(t, f, heavy[0].ID); s.Limits[0] != (engine.LimitKey{Name: "sync/tenant", Key: "acme", Units: 2}) || s.State.Public != state.PublicActive {
		t.Errorf("%+v", s.Limits)
	}
	complete(t, f, heavy...)
	wantClaimable(t, f, 2, "the last of SQL and of Go")
}
