package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	flowSchemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	flowLevels  = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
)

// aLevel is one of so many shares that borrows nothing; what it does with more is said by response.
func aLevel(name string, shares int, response string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":%d,"borrowingLimitPercent":0,"limitResponse":%s}}}`, name, shares, response)
}

// aSchema is for all that users ask for.
func aSchema(name, level string, precedence int, users ...string) string {
	var subjects []string
	for _, u := range users {
		subjects = append(subjects, fmt.Sprintf(`{"kind":"User","user":{"name":%q}}`, u))
	}
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"priorityLevelConfiguration":{"name":%q},"matchingPrecedence":%d,"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[%s],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`,
		name, level, precedence, strings.Join(subjects, ","))
}

// slowly has requests of /apis/of.another/v1/slow run until leave is closed.
func slowly(entered, leave chan struct{}) func(o *Options) {
	return func(o *Options) {
		o.Aggregated = another(func(w http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-leave
			http.NotFound(w, r)
		})
	}
}

func TestTooManyRequestsAreToldToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, leave := make(chan struct{}), make(chan struct{})
		f := newFixture(t, crowd(nil), slowly(entered, leave), func(o *Options) { o.MaxReads, o.MaxWrites = 1, 1 })
		f.must(201, "POST", flowLevels, aLevel("one", 1, `{"type":"Reject"}`), "From: root")
		f.must(201, "POST", flowSchemas, aSchema("one", "one", 500, "eve"), "From: root")
		synctest.Wait()
		done := make(chan int, 1)
		go func() { done <- f.ask("GET", "/apis/of.another/v1/slow", "", "From: eve").Code }()
		<-entered
		w := f.ask("GET", mapsPath, "", "From: eve")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || w.Body.String() != "Too many requests, please try again later.\n" {
			t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
		}
		f.must(201, "POST", mapsPath, cm, "From: bob") // of another level
		f.must(200, "GET", mapsPath, "", "From: eve", "Groups: system:masters")
		close(leave)
		if code := <-done; code != 404 {
			t.Errorf("the slow one: got %d", code)
		}
		f.must(200, "GET", mapsPath, "", "From: eve")
		got := f.must(200, "GET", "/metrics", "", "From: root")
		for _, want := range []string{
			`apiserver_flowcontrol_rejected_requests_total{flow_schema="one",priority_level="one",reason="concurrency-limit"} 1`,
			`apiserver_flowcontrol_dispatched_requests_total{flow_schema="one",priority_level="one"} 2`,
			`apiserver_flowcontrol_nominal_limit_seats{priority_level="one"} 1`,
			`apiserver_flowcontrol_work_estimated_seats_count{flow_schema="one",priority_level="one"} 3`,
			`apiserver_flowcontrol_current_inqueue_seats{flow_schema="one",priority_level="one"} 0`,
			`apiserver_flowcontrol_request_queue_length_after_enqueue_count{flow_schema="one",priority_level="one"} 0`,
			`apiserver_flowcontrol_current_executing_seats{priority_level="one"} 0`,
			`apiserver_flowcontrol_request_execution_seconds_count{flow_schema="one",priority_level="one"} 2`,
			`apiserver_flowcontrol_request_wait_duration_seconds_bucket{execute="true",flow_schema="one",priority_level="one",le="0"} 2`,
		} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("no %s in the metrics", want)
			}
		}
	})
}

// TestAnswersSayTheirFlowSchema, and follow when it changes: the precedence of schemas, and levels
// that are not there.
func TestAnswersSayTheirFlowSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, crowd(nil))
		of := func() (schema, level string) {
			synctest.Wait()
			h := f.ask("GET", mapsPath, "", "From: eve").Header()
			return h.Get("X-Kubernetes-PF-FlowSchema-UID"), h.Get("X-Kubernetes-PF-PriorityLevel-UID")
		}
		uid := func(answer string) string {
			_, rest, _ := strings.Cut(answer, `"uid":"`)
			id, _, _ := strings.Cut(rest, `"`)
			return id
		}
		if schema, level := of(); schema != "" || level != "" {
			t.Errorf("nothing is stored: got %q and %q", schema, level)
		}
		low := uid(f.must(201, "POST", flowLevels, aLevel("low", 10, `{"type":"Queue","queuing":{}}`), "From: root"))
		second := uid(f.must(201, "POST", flowSchemas, aSchema("second", "low", 600, "eve"), "From: root"))
		if schema, level := of(); schema != second || level != low || low == "" {
			t.Errorf("got %q and %q, want %q and %q", schema, level, second, low)
		}
		first := uid(f.must(201, "POST", flowSchemas, aSchema("first", "high", 500, "eve"), "From: root"))
		if schema, _ := of(); schema != second {
			t.Errorf("a schema whose level is not there counts: got %q", schema)
		}
		high := uid(f.must(201, "POST", flowLevels, aLevel("high", 10, `{"type":"Reject"}`), "From: root"))
		if schema, level := of(); schema != first || level != high {
			t.Errorf("got %q and %q, want %q and %q", schema, level, first, high)
		}
		f.must(200, "DELETE", flowSchemas+"/first", "", "From: root")
		if schema, _ := of(); schema != second {
			t.Errorf("a schema that is gone counts: got %q, want %q", schema, second)
		}
	})
}

// TestAFloodDoesNotHoldUpOthers: while one user asks as fast as the server answers, by as many requests at a
// time as it likes, another of the same level is served in at most twice the time that it takes alone.
// Requests take a second each, so that all else costs nothing.
func TestAFloodDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, crowd(nil), func(o *Options) {
			o.MaxReads, o.MaxWrites = 40, 20
			o.Aggregated = another(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second)
				http.NotFound(w, r)
			})
		})
		ended := make(chan struct{})
		flood := make(chan struct{}, 500)
		for range 500 {
			go func() {
				defer func() { flood <- struct{}{} }()
				for {
					select {
					case <-ended:
						return
					default:
					}
					if f.ask("GET", "/apis/of.another/v1/slow", "", "From: eve").Code == http.StatusTooManyRequests {
						time.Sleep(time.Second) // as it was told
					}
				}
			}()
		}
		time.Sleep(10 * time.Second)
		var longest time.Duration
		for range 100 {
			began := time.Now()
			if got := f.ask("GET", "/apis/of.another/v1/slow", "", "From: bob").Code; got != 404 {
				t.Fatalf("bob got %d", got)
			}
			longest = max(longest, time.Since(began))
		}
		if longest > 2*time.Second {
			t.Errorf("one of bob's requests took %s, want 2 s at most", longest)
		}
		close(ended)
		for range 500 {
			<-flood
		}
	})
}

// TestWatchesTakeSeatsUntilTheyHaveBegun: so a level of few seats has many watches.
func TestWatchesTakeSeatsUntilTheyHaveBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, crowd(nil), func(o *Options) { o.MaxReads, o.MaxWrites = 1, 1 })
		f.must(201, "POST", flowLevels, aLevel("one", 1, `{"type":"Reject"}`), "From: root")
		f.must(201, "POST", flowSchemas, aSchema("one", "one", 500, "eve"), "From: root")
		synctest.Wait()
		codes := make(chan int)
		for range 20 {
			go func() { codes <- f.ask("GET", mapsPath+"?watch=1&timeoutSeconds=5", "", "From: eve").Code }()
			synctest.Wait()
		}
		f.must(200, "GET", mapsPath, "", "From: eve")
		for range 20 {
			if code := <-codes; code != 200 {
				t.Errorf("a watch: got %d", code)
			}
		}
	})
}
