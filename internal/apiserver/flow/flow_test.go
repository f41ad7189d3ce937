package flow

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// of is a request of a user, with the groups of everybody who is known.
func of(name string, groups ...string) *Request {
	return &Request{
		User: &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}, Resource: true, Verb: "get", Plural: "pods", Namespace: "default",
	}
}

func TestSuggestedSchemasTakeTheRequestsTheyAreFor(t *testing.T) {
	t.Parallel()
	c := New(Options{Seats: 600, Wait: time.Second})
	node := of("system:node:n1", "system:nodes")
	lease := of("system:node:n1", "system:nodes")
	lease.Group, lease.Plural, lease.Verb = "coordination.k8s.io", "leases", "update"
	leader := of("system:serviceaccount:kube-system:x")
	leader.Group, leader.Plural, leader.Verb = "coordination.k8s.io", "leases", "update"
	status := of("system:node:n1", "system:nodes")
	status.Plural, status.Sub, status.Namespace, status.Verb = "nodes", "status", "", "patch"
	probe := &Request{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, Verb: "get", Path: "/readyz/etcd"}
	other := &Request{User: probe.User, Verb: "get", Path: "/readyzz"}
	for _, tc := range []struct {
		r    *Request
		want string
	}{
		{of("admin", user.SystemPrivilegedGroup), "exempt exempt"},
		{node, "system-nodes system"},
		{lease, "system-node-high node-high"},
		{status, "system-node-high node-high"},
		{leader, "system-leader-election leader-election"},
		{of("system:serviceaccount:kube-system:x"), "kube-system-service-accounts workload-high"},
		{of("system:serviceaccount:kube-system2:x", "system:serviceaccounts"), "service-accounts workload-low"},
		{of("system:kube-scheduler"), "kube-scheduler workload-high"},
		{of("jane"), "global-default global-default"},
		{probe, "probes exempt"},
		{other, "global-default global-default"},
		{&Request{User: &user.DefaultInfo{Name: "groupless"}, Resource: true, Verb: "get", Plural: "pods"}, "catch-all catch-all"},
	} {
		if f := c.Classify(tc.r); f.schema.name+" "+f.schema.level.name != tc.want {
			t.Errorf("%+v: got %s of level %s, want %s", tc.r, f.schema.name, f.schema.level.name, tc.want)
		}
	}
	if c.Classify(of("a")).hash == c.Classify(of("b")).hash {
		t.Error("two users are one flow")
	}
}

// levelOf is one with a schema of its name that all users whose names begin with it match.
func levelOf(name string, limited *flowcontrolv1.LimitedPriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: limited},
	}
}

func schemaOf(level string, users ...string) *flowcontrolv1.FlowSchema {
	fs := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: level, UID: "s"}}
	fs.Spec.PriorityLevelConfiguration.Name, fs.Spec.MatchingPrecedence = level, 500
	fs.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType}
	rule := flowcontrolv1.PolicyRulesWithSubjects{ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
		Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true,
	}}}
	for _, u := range users {
		rule.Subjects = append(rule.Subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: u}})
	}
	fs.Spec.Rules = []flowcontrolv1.PolicyRulesWithSubjects{rule}
	return fs
}

// limit are shares, of which a part is lent, with queues or without.
func limit(shares, lendable int32, borrowing *int32, queues *flowcontrolv1.QueuingConfiguration) *flowcontrolv1.LimitedPriorityLevelConfiguration {
	l := &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LendablePercent: &lendable, BorrowingLimitPercent: borrowing}
	l.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
	if queues != nil {
		l.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: queues}
	}
	return l
}

// bed is a control whose requests are told apart by their users.
type bed struct {
	*Control
	t    *testing.T
	lock sync.Mutex
	got  []string
	held map[string][]Held
	wg   sync.WaitGroup
}

// newBed has levels of 95 shares together and catch-all's 5, so that a share is one of as many seats.
func newBed(t *testing.T, seats int, schemas []*flowcontrolv1.FlowSchema, levels ...*flowcontrolv1.PriorityLevelConfiguration) *bed {
	b := &bed{Control: New(Options{Seats: seats, Wait: 10 * time.Second}), t: t, held: map[string][]Held{}}
	b.Configure(schemas, levels)
	return b
}

func (b *bed) levelOf(name string) *level {
	i := slices.IndexFunc(b.mu.levels, func(l *level) bool { return l.name == name })
	return b.mu.levels[i]
}

// ask has a user ask for seats, n times, each when the one before has them, waits or is refused: so what they are
// told comes in order.
func (b *bed) ask(name string, n, seats int) {
	for range n {
		b.wg.Go(func() {
			h, refusal := b.Acquire(b.t.Context(), b.Classify(of(name)), seats, of(name))
			b.lock.Lock()
			defer b.lock.Unlock()
			if refusal != "" {
				b.got = append(b.got, name+":"+string(refusal))
				return
			}
			b.got = append(b.got, name)
			b.held[name] = append(b.held[name], h)
		})
		synctest.Wait()
	}
}

// release gives back what n requests of a user hold.
func (b *bed) release(name string, n int) {
	b.lock.Lock()
	held := slices.Clone(b.held[name][:n])
	b.held[name] = b.held[name][n:]
	b.lock.Unlock()
	for i := range held {
		b.Release(&held[i])
		synctest.Wait()
	}
}

// told is what has happened since the last call, in order, alike ones together.
func (b *bed) told() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	var out []string
	for i := 0; i < len(b.got); {
		n := i
		for n < len(b.got) && b.got[n] == b.got[i] {
			n++
		}
		out = append(out, fmt.Sprint(b.got[i], "*", n-i))
		i = n
	}
	b.got = nil
	return strings.Join(out, " ")
}

func (b *bed) want(what, want string) {
	b.t.Helper()
	if got := b.told(); got != want {
		b.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

var queues = &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 6, QueueLengthLimit: 50}

func TestNoFlowTakesAllSeatsOfItsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, 100, []*flowcontrolv1.FlowSchema{schemaOf("only", "a", "b", "c")}, levelOf("only", limit(95, 0, nil, nil)))
		b.ask("a", 100, 1)
		b.want("alone, it gets half", "a*48 a:concurrency-limit*52")
		b.ask("b", 100, 1)
		b.want("the next one finds half of the rest", "b*24 b:concurrency-limit*76")
		b.ask("c", 1, 1)
		b.want("and who comes later a seat", "c*1")
	})
}

func TestLevelsLendAndBorrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schemas := []*flowcontrolv1.FlowSchema{schemaOf("lends", "a"), schemaOf("borrows", "b", "c", "d", "e", "f", "g", "h"), schemaOf("little", "x", "y")}
		b := newBed(t, 100, schemas,
			levelOf("lends", limit(40, 50, nil, queues)), levelOf("borrows", limit(45, 0, nil, nil)), levelOf("little", limit(10, 0, new(int32(50)), nil)))
		for _, name := range []string{"b", "c", "d", "e", "f", "g", "h"} {
			b.ask(name, 100, 1)
		}
		b.told()
		used := 0
		for _, held := range b.held {
			used += len(held)
		}
		if used < 64 || used > 65 { // 45 of its own, and the 20 that are lent
			t.Errorf("who borrows has %d seats, want 65", used)
		}
		b.ask("a", 15, 1)
		b.want("what is not lent is there", "a*10") // half of 20
		b.ask("x", 20, 1)
		b.want("a level may borrow so much of its own", "x*5 x:concurrency-limit*15")
		b.release("b", 10)
		b.want("who has less than its own goes first", "a*5")
	})
}

func TestQueuesAreServedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bed
		queueOf := func(name string) (card int) {
			b.levelOf("only").deck.Deal(b.Classify(of(name)).hash, func(c int) { card = c })
			return card
		}
		for b == nil || queueOf("greedy") == queueOf("modest") { // flows fall into queues by chance: two may share one
			b = newBed(t, 20, []*flowcontrolv1.FlowSchema{schemaOf("only", "greedy", "modest", "first")}, levelOf("only", limit(95, 0, nil, &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 1, QueueLengthLimit: 20})))
		}
		b.ask("first", 9, 1)
		b.ask("greedy", 30, 1)
		b.want("who runs and who does not", "first*9 greedy*5 greedy:queue-full*5")
		b.ask("modest", 8, 1)
		b.want("there are seats for others", "modest*3")
		for range 4 {
			time.Sleep(time.Second)
			b.release("first", 2)
		}
		got := b.told()
		if greedy, modest := sum(got, "greedy"), sum(got, "modest"); greedy < 1 || modest < 2 {
			t.Errorf("of 8 seats that came free greedy got %d and modest %d (%s), want each to get as many as it leaves free", greedy, modest, got)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := b.told(); !strings.Contains(got, "greedy:time-out*") {
			t.Errorf("who waited too long: got %q", got)
		}
		b.wg.Wait()
	})
}

func TestLevelsQueuesAndWhoWaitsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, 20, []*flowcontrolv1.FlowSchema{schemaOf("only", "jane", "joe")}, levelOf("only", limit(95, 0, nil, &flowcontrolv1.QueuingConfiguration{Queues: 2, HandSize: 1, QueueLengthLimit: 2})))
		b.ask("jane", 14, 1)
		b.want("who runs", "jane*10 jane:queue-full*2")
		dump := func(write func(w io.Writer) error) string { // without what makes columns
			var out strings.Builder
			if err := write(&out); err != nil {
				t.Fatal(err)
			}
			var lines strings.Builder
			for line := range strings.Lines(out.String()) {
				lines.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
			}
			return lines.String()
		}
		levels := dump(b.DumpLevels)
		for _, want := range []string{
			"PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests\n",
			"catch-all, 0, true, false, 0, 0, 0, 0, 0, 0\n", "only, 1, false, false, 2, 10, 10, 2, 0, 0\n",
		} {
			if !strings.Contains(levels, want) {
				t.Errorf("got\n%swant\n%s", levels, want)
			}
		}
		queues := dump(b.DumpQueues)
		if want := "PriorityLevelName, Index, PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum\n"; !strings.HasPrefix(queues, want) || strings.Count(queues, "\n") != 1+2 {
			t.Errorf("got\n%swant two queues after\n%s", queues, want)
		}
		if want := " 2, 0, 0, 0.00000000ss, 2, 2, 0.00600000ss\n"; !strings.Contains(queues, want) {
			t.Errorf("got\n%swant\n%s", queues, want)
		}
		requests := dump(func(w io.Writer) error { return b.DumpRequests(w, true) })
		for _, want := range []string{" FlowDistingsher, ArriveTime, ", "\nonly, only, ", ", 0, jane, ", ", 1, jane, ", ", jane, get, , default, , , pods,\n"} {
			if !strings.Contains(requests, want) {
				t.Errorf("got\n%swant\n%s", requests, want)
			}
		}
		if got := dump(func(w io.Writer) error { return b.DumpRequests(w, false) }); strings.Contains(got, "UserName") || strings.Count(got, "\n") != 1+2 {
			t.Errorf("got\n%s", got)
		}
		time.Sleep(10 * time.Second)
		b.wg.Wait()
		if got, want := dump(b.DumpLevels), "only, 0, false, false, 0, 10, 10, 2, 2, 0\n"; !strings.Contains(got, want) {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// sum is how often a name is told.
func sum(told, name string) int {
	n := 0
	for part := range strings.FieldsSeq(told) {
		if of, count, ok := strings.Cut(part, "*"); ok && of == name {
			var k int
			_, _ = fmt.Sscan(count, &k)
			n += k
		}
	}
	return n
}

func TestWideRequestsTakeSeveralSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, 100, []*flowcontrolv1.FlowSchema{schemaOf("only", "a", "b", "c")}, levelOf("only", limit(95, 0, nil, queues)))
		if got := b.Classify(of("a")).MostSeats(); got != 15 {
			t.Errorf("a request takes at most %d of 95 seats, want 15", got)
		}
		b.ask("a", 10, 10)
		b.want("five lists hold 50 seats, and leave 45", "a*5")
		b.ask("b", 30, 1)
		b.want("others find seats", "b*23")
		b.ask("c", 1, 100)
		b.want("a list finds fifteen", "c*1")
		b.release("c", 1)
		b.release("a", 4)
		if got := b.told(); sum(got, "b") != 7 || sum(got, "a") < 1 {
			t.Errorf("and then those that wait: got %q, want seven of b's and a list", got)
		}
		if want := 10*len(b.held["a"]) + len(b.held["b"]); b.levelOf("only").used != want {
			t.Errorf("%d seats are in use, want %d", b.levelOf("only").used, want)
		}
		for _, name := range []string{"a", "b", "c"} {
			for len(b.held[name]) > 0 {
				b.release(name, 1)
			}
		}
		b.wg.Wait()
	})
}

func TestSeatsAreGivenBackWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, 50, []*flowcontrolv1.FlowSchema{schemaOf("only", "a", "b")}, levelOf("only", limit(95, 40, nil, queues)))
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 400 {
			b.wg.Go(func() {
				h, refusal := b.Acquire(ctx, b.Classify(of([]string{"a", "b"}[i%2])), 1+i%5, of("a"))
				if refusal == "" {
					time.Sleep(time.Duration(i%7) * time.Second)
					b.Release(&h)
				}
			})
		}
		synctest.Wait()
		b.Configure([]*flowcontrolv1.FlowSchema{schemaOf("only", "a")}, []*flowcontrolv1.PriorityLevelConfiguration{levelOf("only", limit(95, 90, new(int32(0)), queues))})
		time.Sleep(3 * time.Second)
		b.Configure(nil, nil) // the level goes with its requests
		time.Sleep(3 * time.Second)
		cancel()
		b.wg.Wait()
		if b.mu.lent != 0 {
			t.Errorf("%d seats are lent to nobody", b.mu.lent)
		}
		for _, l := range b.mu.levels {
			if l.used != 0 || l.waiting != 0 || len(l.held) != 0 {
				t.Errorf("%s: %d seats in use, %d wait, %v", l.name, l.used, l.waiting, l.held)
			}
		}
	})
}

func BenchmarkFreeSeat(b *testing.B) {
	c := New(Options{Seats: 600, Wait: time.Second})
	r := of("jane", "team-a", "team-b")
	b.ReportAllocs()
	for b.Loop() {
		f := c.Classify(r)
		h, refusal := c.Acquire(b.Context(), f, 1, r)
		if refusal != "" {
			b.Fatal(refusal)
		}
		c.Release(&h)
	}
}
