// Package fftest tests programs with this library: a real Postgres, a database for each test, a worker driven by the
// test, and a clock moved by the test.
//
//	func TestFulfil(t *testing.T) {
//		kit := fftest.New(t)
//		worker.Handle(kit.Worker, Fulfil, fulfil)
//		created := fftest.Create(kit, Fulfil, order)
//		kit.Drain()                 // everything that can run now, with its children and retries
//		kit.Advance(24 * time.Hour) // delays, leases, timeouts
//		kit.Drain()
//		fftest.RequireResult(t, kit, Fulfil, created.ID, Receipt{Item: "lamp"})
//	}
//
// The server comes from DATABASE_URL, or else is a container, or an embedded server without Docker. All test binaries
// of a run share one server. See docs/testing.md.
package fftest
