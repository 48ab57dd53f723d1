// Package signals tests waits, waitpoints and signals. Where to find a rule:
//
//	a wait from the suspension to the next claim   TestSuspendUntilASignal, TestResumedExecutionIsClaimedByAGrant_S19_S22
//	conditions, in any order of the signals        TestConditions, TestBothTokensAreNeeded, TestSignalsFollowTheModel
//	repeated suspensions, ids of two executions    TestSuspendRepeated_S8, TestWaitpointsBelongToOneExecution_S7
//	signals at once                                TestSignalsAtOnce_S14
//	wrong tokens                                   TestWrongTokens_S33, TestStrangersGetOneAnswer, FuzzWaitpointTokens
//	signals before the wait                        TestWaitpointOfAWait_S4_S5_S6, TestLaterWaitpointOutlivesAWait_S3_S51
//	the timeout of a wait that is over             TestTimeoutOfAFormerWait_S1
//	a cancel during the wait                       TestCancelWhileSuspended_S2
//	timeouts and resumes, dependents too           TestTimeouts_S1_S23, TestTimeoutOfAMember, TestResume_S18_S20_S21_S53
//	rotations                                      TestWaitpointOfAWait_S4_S5_S6, TestWrongTokens_S33; those of the keystore are in operators
//	lists without tokens, in pages                 TestListWaitpoints, TestWaitsAreListedOnceEach_S35
//	tokens in logs                                 TestNoLogHoldsAToken, TestPrintedTokens
//	a waiter acts on what was committed            TestSignalAfterALock, TestTokenAfterALock, TestTimeoutAfterALock
//	waits of a converted database                  TestAdoptedWaitsGoOn in schema
package signals

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestMain makes the test binary an actor when a test starts it as one.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*asActor {
		fixture.Main(m)
		return
	}
	if err := act(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rows returns the number of rows of a table, in a database of the test's own.
func rows(t *testing.T, f *fixture.Fixture, table string) int {
	t.Helper()
	return len(fixture.Texts(t, f.Pool, "SELECT '' FROM "+table))
}
